#include "cache/disk_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/bits.h"
#include "base/check.h"
#include "base/format.h"

namespace cohort::cache {
namespace {

constexpr const char* kChanged = "leave the data set as it is while a run reads it";

base::FileDescriptor opened(const std::string& path, int flags) {
  return base::FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags));
}

const char* hint_for(int error) { return error == ENOENT ? "check the path" : "check its permissions: ls -l"; }

FileState state_from(const struct stat& found) {
  return {found.st_size, found.st_mtim.tv_sec * 1'000'000'000 + found.st_mtim.tv_nsec};
}

}  // namespace

FileState state_of(const std::string& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) base::fail_errno(path, "a readable file", errno, hint_for(errno));
  return state_from(found);
}

DiskFile::DiskFile(std::string path, ReadFunction read)
    : path_(std::move(path)), read_(std::move(read)), file_(opened(path_, O_DIRECT)) {
  is_direct_ = file_ && reads_directly();
  if (!is_direct_) file_ = opened(path_, 0);
  if (!file_) base::fail_errno(path_, "a readable file", errno, hint_for(errno));
  if (!is_direct_) posix_fadvise(file_.get(), 0, 0, POSIX_FADV_RANDOM);  // a hint
  opened_ = state();
}

// Some file systems accept O_DIRECT and refuse the first read.
bool DiskFile::reads_directly() const {
  BlockBuffer block;
  return ::pread(file_.get(), block.reserve(kBlockBytes).data(), kBlockBytes, 0) >= 0;
}

FileState DiskFile::state() const {
  struct stat found {};
  if (fstat(file_.get(), &found) != 0) base::fail_errno(path_, "a file with a size", errno);
  return state_from(found);
}

void DiskFile::demand_unchanged() const { demand_same(opened_, state()); }

void DiskFile::demand_same(const FileState& expected, const FileState& found) const {
  if (found == expected) return;
  throw base::Error({path_, base::format("the {} bytes with which the run began", expected.bytes),
                     found.bytes == expected.bytes ? std::string("a file that was written to since")
                                                   : base::format("{} bytes", found.bytes),
                     kChanged});
}

void DiskFile::read(uint64_t offset, std::span<std::byte> to, std::size_t needed) const {
  std::size_t done = 0;
  while (done < needed) {
    const ssize_t got = read_(file_.get(), to.data() + done, to.size() - done, static_cast<off_t>(offset + done));
    const int error = errno;
    if (got < 0 && error == EINTR) continue;
    const auto place = [&] { return base::format("{}, offset {}", path_, offset + done); };
    if (got < 0) base::fail_errno(place(), "bytes of the file", error, "see the kernel's log: dmesg");
    done += static_cast<std::size_t>(got);
    // A direct read that ends within a block has come to the end of the file.
    const bool at_end = got == 0 || (is_direct_ && done % kBlockBytes != 0);
    if (at_end && done < needed) {
      throw base::Error(
          {place(), base::format("{} more bytes", needed - done), "the end of the file before them", kChanged});
    }
  }
}

BlockBuffer::~BlockBuffer() { std::free(data_); }

std::span<std::byte> BlockBuffer::reserve(std::size_t bytes) {
  if (bytes > bytes_) {
    std::free(data_);
    bytes_ = base::round_up(bytes, DiskFile::kBlockBytes);
    data_ = static_cast<std::byte*>(std::aligned_alloc(DiskFile::kBlockBytes, bytes_));
    if (!data_) {
      const std::size_t wanted = std::exchange(bytes_, 0);
      throw base::Error(
          {"host memory", base::format_bytes(wanted) + " to read a disk", "less", "use a machine with more memory"});
    }
  }
  return {data_, bytes_};
}

}  // namespace cohort::cache
