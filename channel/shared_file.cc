#include "channel/shared_file.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>

#include "base/check.h"
#include "base/file_descriptor.h"
#include "base/format.h"

namespace cohort::channel {

using base::FileDescriptor;
using base::format_bytes;

std::size_t free_bytes_of(const std::filesystem::path& folder) {
  struct statvfs space {};
  if (statvfs(folder.c_str(), &space) != 0) base::fail_errno(folder.string(), "a folder of shared memory", errno);
  return space.f_bavail * space.f_frsize;
}

base::Mapping create_shared_file(const std::filesystem::path& path, std::size_t bytes) {
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
  return base::Mapping::of(file, bytes, base::Access::kReadWrite, path.string());
}

}  // namespace cohort::channel
