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
void put_list(const Range& range, int64_t offset, const RelationLists& relation, int64_t list) {
  const base::CscRef& lists = relation.lists;
  const int64_t* ends = lists.indptr + (list - relation.first);
  const int64_t row = ends[0], degree = ends[1] - row, padding = 0;
  range.put(offset + list_bytes(degree, lists.index_bytes) - kWordBytes, &padding, kWordBytes);
  range.put(offset, &degree, kWordBytes);
  range.put(offset + kWordBytes, static_cast<const std::byte*>(lists.indices) + row * lists.index_bytes,
            degree * lists.index_bytes);
}

}  // namespace

ListPacker::ListPacker(std::vector<RelationLists> relations, std::span<const uint32_t> lists)
    : relations_(std::move(relations)), lists_(lists), entries_(lists.size()) {
  const auto num_lists = static_cast<int64_t>(lists.size());
#pragma omp parallel for
  for (int64_t i = 0; i < num_lists; ++i) {
    const int64_t list = lists_[static_cast<std::size_t>(i)];
    const RelationLists& relation = range_with(relations_, list);
    const int64_t* ends = relation.lists.indptr + (list - relation.first);
    const int64_t bytes = list_bytes(ends[1] - ends[0], relation.lists.index_bytes);
    entries_[static_cast<std::size_t>(i)] = static_cast<uint64_t>(bytes);
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
    put_list({begin, out}, static_cast<int64_t>(ibp::entry_offset_bytes(entries_[at])),
             range_with(relations_, lists_[at]), lists_[at]);
  }
}

ListSlab::ListSlab(const std::vector<RelationLists>& relations, const Slab& slab, int64_t piece_bytes) {
  ListPacker packer(relations, slab.nodes);
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
