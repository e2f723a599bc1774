#include "cache/list_slab.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/staged_copy.h"
#include "cache/plan/cost.h"
#include "ibp/encoded_ref.h"

namespace cohort::cache {
namespace {

constexpr int64_t kWordBytes = sizeof(int64_t);

uint64_t entry_at(int64_t offset_bytes) { return ibp::make_entry(static_cast<uint64_t>(offset_bytes), 0, false); }

// A range of the slab's bytes.
struct Range {
  int64_t begin;
  std::span<std::byte> bytes;

  // Copies what lies in the range of `size` bytes that belong at `offset` of the slab.
  void put(int64_t offset, const void* from, int64_t size) const {
    const int64_t end = begin + static_cast<int64_t>(bytes.size());
    const int64_t first = std::max(offset, begin), last = std::min(offset + size, end);
    if (first >= last) return;
    std::memcpy(bytes.data() + (first - begin), static_cast<const std::byte*>(from) + (first - offset),
                static_cast<std::size_t>(last - first));
  }
};

// The last word is padding, neighbours, or the degree of an empty list: what comes later in this order stays.
void put_list(const Range& range, int64_t offset, const base::CscRef& lists, int64_t node) {
  const int64_t row = lists.indptr[node], degree = lists.indptr[node + 1] - row, padding = 0;
  range.put(offset + list_bytes(degree, lists.index_bytes) - kWordBytes, &padding, kWordBytes);
  range.put(offset, &degree, kWordBytes);
  range.put(offset + kWordBytes, static_cast<const std::byte*>(lists.indices) + row * lists.index_bytes,
            degree * lists.index_bytes);
}

}  // namespace

ListPacker::ListPacker(const base::CscRef& lists, std::span<const uint32_t> nodes)
    : lists_(lists), nodes_(nodes), entries_(nodes.size()) {
  const auto num_lists = static_cast<int64_t>(nodes.size());
#pragma omp parallel for
  for (int64_t i = 0; i < num_lists; ++i) {
    const int64_t node = nodes_[static_cast<std::size_t>(i)];
    const int64_t degree = lists_.indptr[node + 1] - lists_.indptr[node];
    entries_[static_cast<std::size_t>(i)] = static_cast<uint64_t>(list_bytes(degree, lists_.index_bytes));
  }
  for (uint64_t& entry : entries_) {
    const auto size = static_cast<int64_t>(entry);
    entry = entry_at(bytes_);
    bytes_ += size;
  }
}

void ListPacker::write(int64_t begin, std::span<std::byte> out) const {
  if (out.empty()) return;
  const int64_t end = begin + static_cast<int64_t>(out.size());
  base::require(begin >= 0 && end <= bytes_, "a range lies in the slab");
  const auto list_with = [&](int64_t offset) {
    return std::upper_bound(entries_.begin(), entries_.end(), entry_at(offset)) - entries_.begin() - 1;
  };
  const int64_t first = list_with(begin), last = list_with(end - 1);
#pragma omp parallel for schedule(dynamic, 64)
  for (int64_t i = first; i <= last; ++i) {
    const auto at = static_cast<std::size_t>(i);
    put_list({begin, out}, static_cast<int64_t>(ibp::entry_offset_bytes(entries_[at])), lists_, nodes_[at]);
  }
}

ListSlab::ListSlab(const base::CscRef& lists, const Slab& slab, int64_t piece_bytes) {
  ListPacker packer(lists, slab.nodes);
  base::require(packer.bytes() == slab.bytes, "the lists of a slab take the bytes that the plan says");
  base::require(piece_bytes > 0, "a piece has bytes");
  data_ = base::DeviceBytes(static_cast<std::size_t>(slab.bytes), "allocate the neighbour lists that a GPU caches");
  base::StagedCopy copy(static_cast<std::size_t>(std::min(piece_bytes, slab.bytes)), "copy neighbour lists to the GPU");
  for (int64_t begin = 0; begin < slab.bytes; begin += piece_bytes) {
    const auto size = static_cast<std::size_t>(std::min(piece_bytes, slab.bytes - begin));
    packer.write(begin, {copy.next(), size});
    copy.copy_to(data_.data() + begin, size);
  }
  copy.finish();
  entries_ = std::move(packer).take_entries();
}

}  // namespace cohort::cache
