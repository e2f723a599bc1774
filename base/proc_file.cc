#include "base/proc_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/file_descriptor.h"

namespace cohort::base {

std::string read_proc(const std::filesystem::path& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return {};
  std::string text;
  std::array<char, 8192> piece;
  while (true) {
    const ssize_t size = read(file.get(), piece.data(), piece.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return {};
    if (size == 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(size));
  }
}

}  // namespace cohort::base
