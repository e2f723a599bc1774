#include "channel/shared_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>

#include "base/check.h"
#include "base/file_descriptor.h"

namespace cohort::channel {
namespace {

using base::FileDescriptor;
using base::format_bytes;

std::byte* map(const FileDescriptor& file, std::size_t bytes, int protection, const std::string& place) {
  void* data = mmap(nullptr, bytes, protection, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) base::fail_errno(place, "a mapping of " + format_bytes(static_cast<double>(bytes)), errno);
  return static_cast<std::byte*>(data);
}

}  // namespace

std::size_t free_bytes_of(const std::filesystem::path& folder) {
  struct statvfs space {};
  if (statvfs(folder.c_str(), &space) != 0) base::fail_errno(folder.string(), "a folder of shared memory", errno);
  return space.f_bavail * space.f_frsize;
}

SharedFile::~SharedFile() {
  if (data_) munmap(data_, bytes_);
}

SharedFile SharedFile::create(const std::filesystem::path& path, std::size_t bytes) {
  const FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file.get() < 0) base::fail_errno(path.string(), "a new file", errno);
  const int error = posix_fallocate(file.get(), 0, static_cast<off_t>(bytes));
  if (error != 0) {
    ::unlink(path.c_str());
    if (error != ENOSPC) base::fail_errno(path.string(), format_bytes(static_cast<double>(bytes)), error);
    throw base::Error(
        {path.parent_path().string(), format_bytes(static_cast<double>(bytes)) + " of space",
         format_bytes(static_cast<double>(free_bytes_of(path.parent_path()))) + " free",
         "enlarge it (mount -o remount,size=... /dev/shm; containers: --shm-size), or use fewer --slots, a "
         "smaller --batch-size or --fanout"});
  }
  SharedFile shared;
  shared.data_ = map(file, bytes, PROT_READ | PROT_WRITE, path.string());
  shared.bytes_ = bytes;
  return shared;
}

SharedFile SharedFile::open(const std::filesystem::path& path, Access access) {
  const bool writable = access == Access::kReadWrite;
  const FileDescriptor file(::open(path.c_str(), (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC));
  if (file.get() < 0) base::fail_errno(path.string(), "a readable file", errno);
  struct stat status {};
  if (fstat(file.get(), &status) != 0) base::fail_errno(path.string(), "its size", errno);
  if (status.st_size == 0) throw base::Error({path.string(), "a mapped file", "an empty file", ""});
  SharedFile shared;
  shared.bytes_ = static_cast<std::size_t>(status.st_size);
  shared.data_ = map(file, shared.bytes_, writable ? PROT_READ | PROT_WRITE : PROT_READ, path.string());
  return shared;
}

}  // namespace cohort::channel
