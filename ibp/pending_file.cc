#include "ibp/pending_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/check.h"
#include "ibp/bits.h"
#include "ibp/file_format.h"

namespace cohort::ibp {

PendingFile::PendingFile(std::string path) : path_(std::move(path)), temporary_(path_ + ".tmp") {
  file_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file_ < 0) base::fail_errno(temporary_, "a file that can be written", errno);
}

PendingFile::~PendingFile() {
  settle();
  if (file_ >= 0) ::close(file_);
  if (!committed_) std::remove(temporary_.c_str());
}

void PendingFile::write(std::span<const std::byte> bytes) {
  settle();
  write_at(bytes, position_);
  position_ += bytes.size();
}

void PendingFile::align() {
  const std::array<std::byte, kSectionAlign> zeros{};
  write(std::span(zeros).first(round_up(position_, kSectionAlign) - position_));
}

void PendingFile::commit(std::span<const std::byte> header) {
  settle();
  if (ftruncate(file_, static_cast<off_t>(position_)) != 0) fail("the file at its length", errno);
  write_at(header, 0);
  const int file = std::exchange(file_, -1);
  if (::close(file) != 0) fail("the file closed", errno);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail("the file under its name", errno);
  committed_ = true;
}

PendingFile::Window PendingFile::open_window(uint64_t max_bytes) {
  constexpr uint64_t kPageBytes = 4096;
  settle();
  if (const int error = reserve(position_ + max_bytes)) fail("space for all bytes", error);
  const uint64_t before = position_ % kPageBytes, length = before + max_bytes;
  void* data = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, file_, static_cast<off_t>(position_ - before));
  if (data == MAP_FAILED) fail("a file that can be mapped", errno);
  const auto unmap = [length](void* address) { munmap(address, length); };
  return {{data, unmap}, static_cast<std::byte*>(data) + before};
}

// Space that cannot be reserved ahead is no error yet: the window that needs it asks again, and says so.
void PendingFile::close_window(Window window, uint64_t max_bytes_of_next) {
  const uint64_t end = position_ + max_bytes_of_next;
  aside_ = std::async(std::launch::async, [this, end, mapping = std::move(window.mapping)]() mutable {
    mapping.reset();
    reserve(end);
  });
}

int PendingFile::reserve(uint64_t end) {
  if (end <= reserved_) return 0;
  // Without reserved space a full disk would end the process with SIGBUS in the middle of a store.
  while (fallocate(file_, 0, static_cast<off_t>(reserved_), static_cast<off_t>(end - reserved_)) != 0) {
    if (errno == EINTR) continue;
    if (errno != EOPNOTSUPP) return errno;
    if (ftruncate(file_, static_cast<off_t>(end)) != 0) return errno;
    break;
  }
  reserved_ = end;
  return 0;
}

void PendingFile::write_at(std::span<const std::byte> bytes, uint64_t position) const {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(position));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("all bytes written", errno);
    position += static_cast<uint64_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void PendingFile::settle() {
  if (aside_.valid()) aside_.get();
}

void PendingFile::fail(const char* expected, int error) const {
  base::fail_errno(path_, expected, error, "is the disk full?");
}

}  // namespace cohort::ibp
