#include "dataset/npy_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/check.h"
#include "dataset/npy_header.h"
#include "dataset/temporary_file.h"

namespace cohort::dataset {
namespace {

constexpr std::size_t kBufferBytes = 8 << 20;

}  // namespace

NpyWriter::NpyWriter(const std::filesystem::path& path, DType dtype)
    : place_(path.string()),
      dtype_(dtype),
      file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
  if (file_ < 0) base::fail_errno(place_, "a file that can be written", errno);
  const std::string room(format_npy_header(dtype_, {0}).size(), ' ');  // as long as that of any length
  write_all(file_, room.data(), room.size(), place_);
  buffer_.reserve(kBufferBytes);
}

NpyWriter::~NpyWriter() { ::close(file_); }

void NpyWriter::append_bytes(std::span<const std::byte> bytes) {
  bytes_ += bytes.size();
  if (buffer_.size() + bytes.size() > kBufferBytes) flush();
  if (bytes.size() >= kBufferBytes) return write_all(file_, bytes.data(), bytes.size(), place_);
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

void NpyWriter::flush() {
  write_all(file_, buffer_.data(), buffer_.size(), place_);
  buffer_.clear();
}

void NpyWriter::finish() {
  flush();
  const std::string header = format_npy_header(dtype_, {size()});
  base::require(header.size() == format_npy_header(dtype_, {0}).size(), "headers of one length");
  if (::lseek(file_, 0, SEEK_SET) != 0) base::fail_errno(place_, "a file with a start", errno);
  write_all(file_, header.data(), header.size(), place_);
}

}  // namespace cohort::dataset
