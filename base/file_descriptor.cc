#include "base/file_descriptor.h"

#include <cerrno>

#include "base/check.h"

namespace cohort::base {
namespace {

constexpr const char* kCure = "free some space or write to another disk";

// Calls write(bytes not yet written, how many were) until all are.
template <typename Write>
void repeat(std::span<const std::byte> bytes, const std::string& place, Write write) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t written = write(bytes.subspan(done), done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      fail_errno(place, format_bytes(bytes.size() - done) + " more of disk space", errno, kCure);
    }
    done += static_cast<std::size_t>(written);
  }
}

}  // namespace

void FileDescriptor::close(const std::string& place) {
  const int number = std::exchange(number_, -1);
  // Linux has closed the file also where a signal came between.
  if (::close(number) != 0 && errno != EINTR) fail_errno(place, "a file written to its end", errno, kCure);
}

void write_all(const FileDescriptor& file, std::span<const std::byte> bytes, const std::string& place) {
  repeat(bytes, place, [&](auto rest, std::size_t) { return ::write(file.get(), rest.data(), rest.size()); });
}

void write_all_at(const FileDescriptor& file, uint64_t offset, std::span<const std::byte> bytes,
                  const std::string& place) {
  repeat(bytes, place, [&](auto rest, std::size_t done) {
    return ::pwrite(file.get(), rest.data(), rest.size(), static_cast<off_t>(offset + done));
  });
}

void sync_to_disk(const FileDescriptor& file, const std::string& place) {
  while (::fsync(file.get()) != 0) {
    if (errno == EINVAL) return;  // a file system that keeps nothing back
    if (errno != EINTR) fail_errno(place, "a file or folder that reaches the disk", errno, kCure);
  }
}

}  // namespace cohort::base
