#include "ibp/mapped_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "ibp/bits.h"
#include "ibp/file_format.h"

namespace cohort::ibp {

void MappedWriter::write(std::span<const std::byte> bytes) {
  settle();
  base::write_all_at(file_.file(), position_, bytes, file_.place());
  position_ += bytes.size();
}

void MappedWriter::align() {
  const std::array<std::byte, kSectionAlign> zeros{};
  write(std::span(zeros).first(round_up(position_, kSectionAlign) - position_));
}

void MappedWriter::commit(std::span<const std::byte> header) {
  settle();
  if (ftruncate(file_.file().get(), static_cast<off_t>(position_)) != 0) fail("the file at its length", errno);
  base::write_all_at(file_.file(), 0, header, file_.place());
  file_.commit();
}

MappedWriter::Window MappedWriter::open_window(uint64_t max_bytes) {
  constexpr uint64_t kPageBytes = 4096;
  settle();
  if (const int error = reserve(position_ + max_bytes)) fail("space for all bytes", error);
  const uint64_t before = position_ % kPageBytes, length = before + max_bytes;
  auto mapping = base::Mapping::of(file_.file(), length, base::Access::kReadWrite, file_.place(), position_ - before);
  std::byte* begin = mapping.data() + before;
  return {std::move(mapping), begin};
}

// Space that cannot be reserved ahead is no error yet: the window that needs it asks again, and says so.
void MappedWriter::close_window(Window window, uint64_t max_bytes_of_next) {
  const uint64_t end = position_ + max_bytes_of_next;
  aside_ = std::async(std::launch::async, [this, end, mapping = std::move(window.mapping)]() mutable {
    mapping = {};
    reserve(end);
  });
}

int MappedWriter::reserve(uint64_t end) {
  if (end <= reserved_) return 0;
  const int file = file_.file().get();
  // Without reserved space a full disk would end the process with SIGBUS in the middle of a store.
  while (fallocate(file, 0, static_cast<off_t>(reserved_), static_cast<off_t>(end - reserved_)) != 0) {
    if (errno == EINTR) continue;
    if (errno != EOPNOTSUPP) return errno;
    if (ftruncate(file, static_cast<off_t>(end)) != 0) return errno;
    break;
  }
  reserved_ = end;
  return 0;
}

void MappedWriter::settle() {
  if (aside_.valid()) aside_.get();
}

void MappedWriter::fail(const char* expected, int error) const {
  base::fail_errno(file_.place(), expected, error, "is the disk full?");
}

}  // namespace cohort::ibp
