// The placement of one clique: items in descending order of seconds saved per byte, each to a GPU with room.
// Internal to cache/.
#pragma once

#include <array>
#include <vector>

#include "cache/plan/order.h"
#include "cache/plan/plan.h"

namespace cohort::cache {

inline constexpr std::array<Kind, kNumKinds> kKinds = {Kind::kFeature, Kind::kTopology};

// The GPUs of a clique.
struct Members {
  std::vector<Counts> counts;  // [n], repeated where GPUs share them
  bool shared_counts = false;
  std::vector<int64_t> budget_bytes;  // [n]
  int size() const { return static_cast<int>(budget_bytes.size()); }
};

// After so many items in a row that did not fit, a sweep looks at no more of their kind.
inline constexpr int64_t kMaxMisses = int64_t{1} << 20;

// The orders that a sweep walks along, as far as it can get: not beyond what fits, of the smallest items, and the
// misses.
class Orders {
 public:
  Orders(const Costs& costs, const IndexCost& index, const Members& members);
  const Order& first(Kind kind) const { return first_[static_cast<std::size_t>(kind)]; }
  // Of further copies on this member.
  const Order& replicas(Kind kind, int member) const {
    const auto& of_kind = replicas_[static_cast<std::size_t>(kind)];
    return of_kind[of_kind.size() == 1 ? 0 : static_cast<std::size_t>(member)];
  }

 private:
  std::array<Order, kNumKinds> first_;
  std::array<std::vector<Order>, kNumKinds>
      replicas_;  // [1] when counts are shared, else [n]; of the same nodes those that save anything
};

// Bits of all nodes: which members hold a copy, and whether a first copy has been decided on.
class Holders {
 public:
  Holders(int64_t num_nodes, int num_members);
  bool holds(int64_t node, int member) const { return bit(node, member); }
  bool held(int64_t node) const;
  bool decided(int64_t node) const { return bit(node, num_members_); }
  void add(int64_t node, int member) { set(node, member); }
  void decide(int64_t node) { set(node, num_members_); }
  void prefetch(int64_t node) const { __builtin_prefetch(bytes_.data() + index(node, 0)); }

 private:
  std::size_t index(int64_t node, int place) const {
    return static_cast<std::size_t>(node) * stride_ + static_cast<std::size_t>(place / 8);
  }
  bool bit(int64_t node, int place) const { return (bytes_[index(node, place)] >> (place % 8) & 1) != 0; }
  void set(int64_t node, int place) {
    uint8_t& byte = bytes_[index(node, place)];
    byte = static_cast<uint8_t>(byte | 1 << (place % 8));
  }
  int num_members_;
  std::size_t stride_;
  std::vector<uint8_t> bytes_;  // uint8 [V, stride]
};

struct Placement {
  std::vector<GpuPlan> gpus;  // [n]; sweep() leaves `use` empty
  std::array<CliqueRows, kNumKinds> rows;
};

struct Swept {
  Placement placement;
  std::vector<Holders> holders;  // [kinds]
};

// What is placed, without what it promises.
Swept sweep(const Costs& costs, const IndexCost& index, const Members& members, const Orders& orders);

// The same with what it promises.
Placement place(const Costs& costs, const IndexCost& index, const Members& members);

}  // namespace cohort::cache
