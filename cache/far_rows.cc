#include "cache/far_rows.h"

#include <vector>

namespace cohort::cache {
namespace {

template <typename T>
void keep(const T*& array, std::size_t size, ibp::EncodedRows& rows) {
  if (!array) return;
  const auto copy = std::make_shared<std::vector<T>>(array, array + size);
  array = copy->data();
  rows.keepers.push_back(copy);
}

}  // namespace

RowFile::RowFile(std::shared_ptr<const HostRows> mapped) : rows(std::move(mapped)) {
  ibp::EncodedRef& ref = encoded.ref;
  const auto num_rows = static_cast<std::size_t>(ref.num_rows), num_words = (num_rows + 31) / 32;
  keep(ref.entries, num_rows, encoded);
  keep(ref.lengths, num_rows, encoded);
  keep(ref.flags, num_words, encoded);
  keep(ref.ranks, num_words, encoded);
}

int64_t FarRows::directory_bytes() const {
  const ibp::EncodedRef& rows = encoded().ref;
  if (rows.layout == ibp::Layout::kPacked) return rows.num_rows * int64_t{sizeof(uint64_t)};
  if (rows.layout == ibp::Layout::kInPlace) return rows.num_rows * int64_t{sizeof(uint16_t)};
  return (rows.num_rows + 31) / 32 * int64_t{2 * sizeof(uint32_t)};
}

FarFetch::~FarFetch() {
  if (job_) job_->abandon();
}

FarFetch& FarFetch::operator=(FarFetch&& other) noexcept {
  if (job_) job_->abandon();
  job_ = std::move(other.job_);
  use_ = other.use_;
  patience_ = std::move(other.patience_);
  return *this;
}

FarUse FarFetch::finish() {
  if (!job_) return use_;
  const std::shared_ptr<ReadJob> job = std::exchange(job_, nullptr);
  job->wait(patience_);
  return use_;
}

}  // namespace cohort::cache
