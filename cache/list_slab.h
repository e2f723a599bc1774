// The neighbour lists that a plan puts into the memory of one GPU; list_ref.h says how they lie there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/owners.h"
#include "cache/plan/plan.h"

namespace cohort::cache {

// The bytes of a slab of lists, which are never all in host memory: made for any range.
class ListPacker {
 public:
  // These lists of the relations, by number, in this order, which is kept by reference.
  ListPacker(std::vector<RelationLists> relations, std::span<const uint32_t> lists);
  int64_t bytes() const { return bytes_; }
  std::span<const uint64_t> entries() const { return entries_; }  // uint64 [lists], ascending; region 0
  std::vector<uint64_t> take_entries() && { return std::move(entries_); }
  // The slab's bytes from `begin` on; the range ends with the slab or before.
  void write(int64_t begin, std::span<std::byte> out) const;

 private:
  std::vector<RelationLists> relations_;
  std::span<const uint32_t> lists_;
  std::vector<uint64_t> entries_;
  int64_t bytes_ = 0;
};

inline constexpr int64_t kListPieceBytes = int64_t{32} << 20;

// In the memory of the GPU that is current when it is made.
class ListSlab {
 public:
  ListSlab() = default;
  // Allocates the plan's bytes and fills them through two pinned pieces of at most `piece_bytes`; waits for the GPU.
  ListSlab(const std::vector<RelationLists>& relations, const Slab& slab, int64_t piece_bytes = kListPieceBytes);
  const std::byte* data() const { return data_.data(); }
  int64_t bytes() const { return static_cast<int64_t>(data_.bytes()); }
  // Where the list of each of Slab::nodes is: uint64 [lists] in host memory, region 0.
  std::span<const uint64_t> entries() const { return entries_; }

 private:
  base::DeviceBytes data_;
  std::vector<uint64_t> entries_;
};

}  // namespace cohort::cache
