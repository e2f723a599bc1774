#include "cache/far_rows.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <vector>

#include "base/large_page_vector.h"
#include "base/prefetch.h"

namespace cohort::cache {
namespace {

template <typename T>
void keep(const T*& array, std::size_t size, ibp::EncodedRows& rows) {
  if (!array) return;
  const auto copy = std::make_shared<base::LargePageVector<T>>(array, array + size);
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

int64_t directory_bytes(const ibp::EncodedRef& rows) {
  if (rows.layout == ibp::Layout::kPacked) return rows.num_rows * int64_t{sizeof(uint64_t)};
  if (rows.layout == ibp::Layout::kInPlace) return rows.num_rows * int64_t{sizeof(uint16_t)};
  return (rows.num_rows + 31) / 32 * int64_t{2 * sizeof(uint32_t)};
}

int64_t FarUse::rows() const {
  return std::accumulate(tiers.begin(), tiers.end(), int64_t{0},
                         [](int64_t sum, const TierUse& tier) { return sum + tier.rows; });
}

FarUse& FarUse::operator+=(const FarUse& more) {
  for (std::size_t tier = 0; tier < tiers.size(); ++tier) {
    tiers[tier].rows += more.tiers[tier].rows;
    tiers[tier].bytes += more.tiers[tier].bytes;
  }
  reads += more.reads;
  read_bytes += more.read_bytes;
  return *this;
}

FarFetch::FarFetch(std::shared_ptr<ReadJob> job, FarUse use, Patience patience) : use_(use) {
  parts_.push_back({std::move(job), std::move(patience)});
}

FarFetch& FarFetch::operator=(FarFetch&& other) noexcept {
  if (this == &other) return *this;
  abandon();
  parts_ = std::move(other.parts_);
  use_ = other.use_;
  return *this;
}

void FarFetch::add(FarFetch&& other) {
  parts_.insert(parts_.end(), std::make_move_iterator(other.parts_.begin()),
                std::make_move_iterator(other.parts_.end()));
  other.parts_.clear();
  use_ += other.use_;
}

bool FarFetch::done() const {
  return std::ranges::all_of(parts_, [](const Part& part) { return part.job->done(); });
}

FarUse FarFetch::finish() {
  while (!parts_.empty()) {
    const Part part = std::move(parts_.back());
    parts_.pop_back();
    try {
      part.job->wait(part.patience);
    } catch (...) {
      abandon();
      throw;
    }
  }
  return use_;
}

void FarFetch::abandon() noexcept {
  for (const Part& part : parts_) part.job->abandon();
  parts_.clear();
}

StagedFetch FarRows::stage(std::span<const uint32_t> ids, bool plane_a, const StageBuffer& buffer) const {
  const ibp::EncodedRef stored = planes_of(encoded().ref, plane_a);
  std::vector<int64_t> staged;
  int64_t at = 0;
  for (std::size_t i = 0; i < ids.size() && std::ssize(staged) < buffer.most_rows; ++i) {
    base::ask_ahead(ids, i, [&](uint32_t next) { prefetch_place(stored, next); });
    const ibp::RowSpan row = ibp::locate(stored, ids[i]);
    const uint32_t bytes = staged_bytes(stored, row);
    if (at + bytes > buffer.row_bytes) break;
    buffer.entries[i] = staged_entry(stored, row, at);
    at += bytes;
    staged.push_back(ids[i]);
  }
  const auto take = [stored, buffer](std::size_t i, const ibp::RowSpan& row) {
    ibp::copy_joined(stored, row, buffer.rows + ibp::entry_offset_bytes(buffer.entries[i]));
  };
  return {fetch(staged, plane_a, take), std::ssize(staged)};
}

}  // namespace cohort::cache
