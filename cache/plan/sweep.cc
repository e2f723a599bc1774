#include "cache/plan/sweep.h"

#include <algorithm>
#include <utility>

namespace cohort::cache {
namespace {

constexpr std::size_t kLookAhead = 16;
constexpr int kFirst = -1;

std::size_t at(Kind kind) { return static_cast<std::size_t>(kind); }

// Candidates of one kind in order: first copies (member kFirst), or further copies on one member.
struct Stream {
  Kind kind;
  int member;
  const Order* order;
  std::size_t position = 0;
  float head = -1;  // density of the candidate at `position`; below 0: none, or none yet
  int64_t misses = 0;
  bool ended = false;

  int64_t node() const { return order->nodes[position]; }
};

struct Gpu {
  GpuPlan plan;
  int64_t room_bytes = 0;
  bool knows_all = false;  // its directory has every row placed so far
};

class Sweep {
 public:
  Sweep(const Costs& costs, const IndexCost& index, const Members& members, std::vector<Holders>& holders)
      : costs_(costs), index_(index), members_(members), holders_(holders) {
    for (int64_t budget_bytes : members.budget_bytes) gpus_.push_back(open_gpu(budget_bytes));
    for (Kind kind : kKinds) reserve(kind);
  }

  Placement run(const Orders& orders) {
    add_streams(orders);
    while (true) {
      const auto best = std::max_element(streams_.begin(), streams_.end(),
                                         [](const Stream& a, const Stream& b) { return a.head < b.head; });
      if (best == streams_.end() || best->head < 0) break;
      best->member == kFirst ? step_first(*best) : step_replica(*best);
    }
    return finish();
  }

 private:
  Gpu open_gpu(int64_t budget_bytes) const {
    Gpu gpu;
    gpu.plan.budget_bytes = budget_bytes;
    int64_t fixed_bytes = index_.scratch_bytes;
    for (Kind kind : kKinds) fixed_bytes += costs_.num_items(kind) > 0 ? index_.bytes_per_kind : 0;
    if (budget_bytes <= fixed_bytes) return gpu;
    gpu.knows_all = true;
    gpu.plan.index_bytes = fixed_bytes;
    gpu.room_bytes = budget_bytes - fixed_bytes;
    return gpu;
  }

  // Memory for the most that can be placed: what is not used is not touched.
  void reserve(Kind kind) {
    if (costs_.num_items(kind) == 0) return;
    int64_t most = 0;
    for (Gpu& gpu : gpus_) {
      const int64_t fitting = gpu.room_bytes / costs_.least_stored_bytes(kind);
      gpu.plan.slabs[at(kind)].nodes.reserve(static_cast<std::size_t>(std::min(fitting, costs_.num_items(kind))));
      most += fitting;
    }
    most = std::min(most, costs_.num_items(kind));
    rows_[at(kind)].nodes.reserve(static_cast<std::size_t>(most));
    rows_[at(kind)].owners.reserve(static_cast<std::size_t>(most));
  }

  void add_streams(const Orders& orders) {
    for (Kind kind : kKinds) {
      if (costs_.num_items(kind) > 0) streams_.push_back({kind, kFirst, &orders.first(kind)});
    }
    for (Kind kind : kKinds) {
      if (members_.size() == 1 || costs_.num_items(kind) == 0) continue;
      for (int member = 0; member < members_.size(); ++member) {
        streams_.push_back({kind, member, &orders.replicas(kind, member)});
      }
    }
    for (Stream& stream : streams_) refresh(stream);
  }

  // Moves past what is no candidate (any more) and notes the density of the next; a replica stream waits for the
  // decision on a node's first copy.
  void refresh(Stream& stream) {
    const Order& order = *stream.order;
    stream.head = -1;
    stream.ended = stream.ended || !has_room(stream) || stream.misses > kMaxMisses;
    for (; !stream.ended; ++stream.position) {
      if (stream.position == order.nodes.size()) {
        stream.ended = true;
        return;
      }
      if (stream.position + kLookAhead < order.nodes.size()) {
        const int64_t ahead = order.nodes[stream.position + kLookAhead];
        holders_[at(stream.kind)].prefetch(ahead);
        costs_.prefetch(stream.kind, ahead);
      }
      if (stream.member != kFirst && waits(stream)) return;
      if (stream.member == kFirst || is_replica_candidate(stream)) {
        stream.head = order.densities[stream.position];
        return;
      }
    }
  }

  const Stream& first_stream(Kind kind) const {
    return *std::find_if(streams_.begin(), streams_.end(), [kind](const Stream& s) { return s.kind == kind; });
  }
  bool waits(const Stream& stream) const {
    return !first_stream(stream.kind).ended && !holders_[at(stream.kind)].decided(stream.node());
  }
  bool is_replica_candidate(const Stream& stream) const {
    const Holders& holders = holders_[at(stream.kind)];
    return holders.held(stream.node()) && !holders.holds(stream.node(), stream.member);
  }

  bool has_room(const Stream& stream) const {
    const int64_t bytes = costs_.least_stored_bytes(stream.kind);
    if (stream.member != kFirst) return fits(gpus_[static_cast<std::size_t>(stream.member)], bytes);
    return std::any_of(gpus_.begin(), gpus_.end(),
                       [&](const Gpu& gpu) { return fits(gpu, bytes + index_.entry_bytes); });
  }
  static bool fits(const Gpu& gpu, int64_t bytes) { return gpu.knows_all && bytes <= gpu.room_bytes; }

  // The member that reads the node most among those with room; equal: with most room; equal: the first. -1: none.
  int choose_owner(Kind kind, int64_t node, int64_t bytes) const {
    int owner = -1;
    double owner_reads = 0;
    for (int member = 0; member < members_.size(); ++member) {
      const Gpu& gpu = gpus_[static_cast<std::size_t>(member)];
      if (!fits(gpu, bytes + index_.entry_bytes)) continue;
      const double reads =
          members_.shared_counts ? 0 : mean_reads(kind, members_.counts[static_cast<std::size_t>(member)], node);
      if (owner >= 0 && reads < owner_reads) continue;
      if (owner >= 0 && reads == owner_reads && gpu.room_bytes <= gpus_[static_cast<std::size_t>(owner)].room_bytes) {
        continue;
      }
      owner = member;
      owner_reads = reads;
    }
    return owner;
  }

  void step_first(Stream& stream) {
    const Kind kind = stream.kind;
    const int64_t node = stream.node(), bytes = costs_.stored_bytes(kind, node);
    const int owner = choose_owner(kind, node, bytes);
    holders_[at(kind)].decide(node);
    if (owner >= 0) {
      enter_in_directories();
      put(kind, node, bytes, owner);
      rows_[at(kind)].nodes.push_back(static_cast<uint32_t>(node));
      rows_[at(kind)].owners.push_back(static_cast<uint16_t>(owner));
    }
    advance(stream, owner >= 0);
    for (Stream& other : streams_) {
      if (other.kind == kind && other.member != kFirst && other.head < 0 && !other.ended) refresh(other);
    }
  }

  void step_replica(Stream& stream) {
    const int64_t node = stream.node(), bytes = costs_.stored_bytes(stream.kind, node);
    const bool good = fits(gpus_[static_cast<std::size_t>(stream.member)], bytes);
    if (good) put(stream.kind, node, bytes, stream.member);
    advance(stream, good);
  }

  void put(Kind kind, int64_t node, int64_t bytes, int member) {
    Gpu& gpu = gpus_[static_cast<std::size_t>(member)];
    gpu.room_bytes -= bytes;
    Slab& slab = gpu.plan.slabs[at(kind)];
    slab.nodes.push_back(static_cast<uint32_t>(node));
    slab.bytes += bytes;
    holders_[at(kind)].add(node, member);
  }

  void advance(Stream& stream, bool placed) {
    stream.misses = placed ? 0 : stream.misses + 1;
    ++stream.position;
    refresh(stream);
  }

  // One more row in every directory; a GPU that cannot pay for it knows only the rows so far, from now on.
  void enter_in_directories() {
    for (Gpu& gpu : gpus_) {
      if (!gpu.knows_all) continue;
      if (index_.entry_bytes > gpu.room_bytes) {
        gpu.knows_all = false;
        for (Kind kind : kKinds) gpu.plan.slabs[at(kind)].num_entries = num_rows(kind);
        continue;
      }
      gpu.room_bytes -= index_.entry_bytes;
      gpu.plan.index_bytes += index_.entry_bytes;
    }
  }
  int64_t num_rows(Kind kind) const { return static_cast<int64_t>(rows_[at(kind)].nodes.size()); }

  Placement finish() {
    Placement placement;
    for (Gpu& gpu : gpus_) {
      for (Kind kind : kKinds) {
        if (gpu.knows_all) gpu.plan.slabs[at(kind)].num_entries = num_rows(kind);
      }
      placement.gpus.push_back(std::move(gpu.plan));
    }
    placement.rows = std::move(rows_);
    return placement;
  }

  const Costs& costs_;
  const IndexCost& index_;
  const Members& members_;
  std::vector<Holders>& holders_;  // [kinds]
  std::vector<Gpu> gpus_;          // [n]
  std::vector<Stream> streams_;    // first copies before replicas
  std::array<CliqueRows, kNumKinds> rows_;
};

}  // namespace

Holders::Holders(int64_t num_nodes, int num_members)
    : num_members_(num_members),
      stride_(static_cast<std::size_t>(num_members / 8 + 1)),
      bytes_(static_cast<std::size_t>(num_nodes) * stride_, uint8_t{0}) {}

bool Holders::held(int64_t node) const {
  for (int place = 0; place < num_members_; place += 8) {
    const int bits = std::min(8, num_members_ - place);
    if ((bytes_[index(node, place)] & ((1 << bits) - 1)) != 0) return true;
  }
  return false;
}

Swept sweep(const Costs& costs, const IndexCost& index, const Members& members, const Orders& orders) {
  Swept swept;
  for (Kind kind : kKinds) swept.holders.emplace_back(costs.num_items(kind), members.size());
  swept.placement = Sweep(costs, index, members, swept.holders).run(orders);
  return swept;
}

}  // namespace cohort::cache
