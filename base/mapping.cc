#include "base/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/check.h"

namespace cohort::base {

Mapping Mapping::of(const FileDescriptor& file, std::size_t bytes, Access access, const std::string& place,
                    std::size_t offset) {
  const int protection = access == Access::kReadWrite ? PROT_READ | PROT_WRITE : PROT_READ;
  void* data = mmap(nullptr, bytes, protection, MAP_SHARED, file.get(), static_cast<off_t>(offset));
  if (data == MAP_FAILED) fail_errno(place, "a file that can be mapped into memory", errno);
  return {data, bytes};
}

Mapping Mapping::of(const std::string& path, Access access) {
  const FileDescriptor file(::open(path.c_str(), (access == Access::kReadWrite ? O_RDWR : O_RDONLY) | O_CLOEXEC));
  const char* hint = errno == ENOENT ? "check the path" : "check its permissions: ls -l";
  if (!file) fail_errno(path, "a readable file", errno, hint);
  struct stat status {};
  if (fstat(file.get(), &status) != 0) fail_errno(path, "a file with a size", errno);
  if (!S_ISREG(status.st_mode)) throw Error({path, "a regular file", "something else", ""});
  if (status.st_size == 0) return {};
  return of(file, static_cast<std::size_t>(status.st_size), access, path);
}

Mapping Mapping::zeros(std::size_t bytes, const char* place, const char* purpose, const char* hint) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) fail_errno(place, format_bytes(bytes) + purpose, errno, hint);
  madvise(data, bytes, MADV_HUGEPAGE);  // a hint: where it is refused, touching takes longer
  return {data, bytes};
}

void Mapping::release() const noexcept {
  if (data_) madvise(data_, bytes_, MADV_DONTNEED);
}

Mapping::~Mapping() {
  if (data_) munmap(data_, bytes_);
}

}  // namespace cohort::base
