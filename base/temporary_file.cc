#include "base/temporary_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/check.h"
#include "base/format.h"

namespace cohort::base {
namespace {

// File systems without O_TMPFILE get a name for a moment.
int open_unnamed(const std::filesystem::path& folder) {
  const int file = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)) return file;
  std::string name = (folder / "cohort.XXXXXX").string();
  const int named = ::mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(name.c_str());
  return named;
}

}  // namespace

TemporaryFile::TemporaryFile(const std::filesystem::path& folder)
    : place_(format("{} (temporary file)", folder.string())), file_(open_unnamed(folder)) {
  if (!file_) fail_errno(place_, "a folder to write in", errno);
}

void TemporaryFile::append(const void* data, std::size_t bytes) {
  write_all(file_, {static_cast<const std::byte*>(data), bytes}, place_);
  bytes_ += static_cast<int64_t>(bytes);
}

void TemporaryFile::read(int64_t offset, void* data, std::size_t bytes) const {
  auto* to = static_cast<std::byte*>(data);
  while (bytes > 0) {
    const ssize_t got = ::pread(file_.get(), to, bytes, offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno(place_, "a file that can be read", errno);
    if (got == 0) throw Error({place_, format("{} more bytes", bytes), "the end of the file", ""});
    to += got;
    offset += got;
    bytes -= static_cast<std::size_t>(got);
  }
}

}  // namespace cohort::base
