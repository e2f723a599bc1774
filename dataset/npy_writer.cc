#include "dataset/npy_writer.h"

#include <fcntl.h>

#include <cerrno>

#include "base/check.h"
#include "dataset/npy_header.h"

namespace cohort::dataset {
namespace {

constexpr std::size_t kWriterBytes = 8 << 20;

}  // namespace

NpyWriter::NpyWriter(const std::filesystem::path& path, DType dtype)
    : place_(path.string()),
      dtype_(dtype),
      file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
  if (!file_) base::fail_errno(place_, "a file that can be written", errno);
  const std::string room(format_npy_header(dtype_, {0}).size(), ' ');  // as long as that of any length
  base::write_all(file_, std::as_bytes(std::span(room)), place_);
  buffer_.reserve(kWriterBytes);
}

void NpyWriter::append_bytes(std::span<const std::byte> bytes) {
  bytes_ += bytes.size();
  if (buffer_.size() + bytes.size() > kWriterBytes) flush();
  if (bytes.size() >= kWriterBytes) return base::write_all(file_, bytes, place_);
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

void NpyWriter::flush() {
  base::write_all(file_, buffer_, place_);
  buffer_.clear();
}

void NpyWriter::finish() {
  flush();
  const std::string header = format_npy_header(dtype_, {size()});
  base::require(header.size() == format_npy_header(dtype_, {0}).size(), "headers of one length");
  base::write_all_at(file_, 0, std::as_bytes(std::span(header)), place_);
  file_.close(place_);
}

}  // namespace cohort::dataset
