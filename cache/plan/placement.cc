#include "cache/plan/placement.h"

#include <algorithm>

#include "cache/plan/order.h"

namespace cohort::cache {
namespace {

constexpr std::array<Kind, kNumKinds> kKinds = {Kind::kFeature, Kind::kTopology};
constexpr int64_t kChunk = 1 << 16;  // sums are taken over these first, so that they do not depend on threads
constexpr int64_t kMaxMisses = int64_t{1} << 20;  // after so many items in a row without room no more are looked at
constexpr std::size_t kLookAhead = 16;
constexpr uint32_t kNowhere = UINT32_MAX;

std::size_t at(Kind kind) { return static_cast<std::size_t>(kind); }

// Rows or lists on their way to the GPUs.
struct Items {
  Order order;                                  // by what a first copy saves per byte
  base::UninitializedVector<float> of_copies;   // float32 [order], the same of a further copy; empty for a GPU alone
  std::size_t next = 0;                         // position in `order`
  int64_t misses = 0;                           // in a row
  CliqueRows placed;                            // with first copies
  std::vector<uint8_t> holders;                 // uint8 [placed], bit g: GPU g has a copy
  std::vector<float> copy_densities;            // float32 [placed]
  std::size_t next_copied = 0;                  // position in `placed`
  base::UninitializedVector<uint32_t> rank_of;  // uint32 [items], position in `placed` or kNowhere
};

class Walk {
 public:
  Walk(const Costs& costs, const IndexCost& index, const Counts& counts, const std::vector<int64_t>& budget_bytes)
      : costs_(costs), index_(index), counts_(counts) {
    for (const int64_t bytes : budget_bytes) open_gpu(bytes);
    for (const Kind kind : kKinds) items_[at(kind)] = order_items(kind);
  }

  Placement run() {
    while (step()) {
    }
    Placement placement;
    for (const Kind kind : kKinds) {
      for (std::size_t gpu = 0; gpu < gpus_.size(); ++gpu) finish(kind, gpu);
      predict(kind);
      placement.rows[at(kind)] = std::move(items_[at(kind)].placed);
    }
    for (Gpu& gpu : gpus_) placement.gpus.push_back(std::move(gpu.plan));
    return placement;
  }

 private:
  struct Gpu {
    GpuPlan plan;
    int64_t room_bytes = 0;
    bool knows_all = false;  // its directory has every row placed so far
  };

  int64_t num_gpus() const { return std::ssize(gpus_); }

  void open_gpu(int64_t budget_bytes) {
    Gpu& gpu = gpus_.emplace_back();
    gpu.plan.budget_bytes = budget_bytes;
    int64_t fixed_bytes = index_.scratch_bytes;
    for (const Kind kind : kKinds) fixed_bytes += costs_.num_items(kind) > 0 ? index_.bitmap_bytes[at(kind)] : 0;
    if (budget_bytes <= fixed_bytes) return;
    gpu.knows_all = true;
    gpu.plan.index_bytes = fixed_bytes;
    gpu.room_bytes = budget_bytes - fixed_bytes;
  }

  Items order_items(Kind kind) const {
    const auto n = static_cast<double>(num_gpus());
    const int64_t num_items = costs_.num_items(kind);
    Items items;
    // A first copy serves its GPU locally, and all others as a peer; every directory has an entry of it.
    items.order = order_by(num_items, [&](int64_t item) {
      const int64_t stored_bytes = costs_.stored_bytes(kind, item);
      if (stored_bytes == 0) return -1.0f;  // there is no row
      const Costs::Saved saved = costs_.saved(kind, counts_, item);
      const auto bytes = static_cast<double>(stored_bytes + num_gpus() * index_.entry_bytes);
      return static_cast<float>((n * saved.host_to_peer + saved.peer_to_local) / bytes);
    });
    items.rank_of.assign(static_cast<std::size_t>(num_items), kNowhere);
    if (num_gpus() == 1) return items;
    items.of_copies.resize(items.order.size());
#pragma omp parallel for schedule(static)
    for (std::size_t i = 0; i < items.order.size(); ++i) {
      const int64_t node = items.order.node(i);
      const auto bytes = static_cast<double>(costs_.stored_bytes(kind, node));
      items.of_copies[i] = static_cast<float>(costs_.saved(kind, counts_, node).peer_to_local / bytes);
    }
    return items;
  }

  // Places what saves most per byte of the next first and further copies of both kinds; false: no more.
  bool step() {
    const auto roomiest = std::ranges::max_element(gpus_, {}, &Gpu::room_bytes);
    Kind best_kind{};
    bool is_copy = false;
    float best = -1;
    for (const bool copies : {false, true}) {
      for (const Kind kind : kKinds) {
        const float density = copies ? next_copy_density(kind, roomiest->room_bytes)
                                     : next_density(kind, roomiest->room_bytes - index_.entry_bytes);
        if (density <= best) continue;
        best = density;
        best_kind = kind;
        is_copy = copies;
      }
    }
    if (best < 0) return false;
    is_copy ? place_copies(best_kind) : place_first(best_kind, static_cast<std::size_t>(roomiest - gpus_.begin()));
    return true;
  }

  // -1: no candidate is left, or none has room.
  float next_density(Kind kind, int64_t room_bytes) const {
    const Items& items = items_[at(kind)];
    const bool has_room = room_bytes >= costs_.least_stored_bytes(kind) && items.misses <= kMaxMisses;
    return has_room && items.next < items.order.size() ? items.order.density(items.next) : -1;
  }
  float next_copy_density(Kind kind, int64_t room_bytes) const {
    const Items& items = items_[at(kind)];
    const bool has_room = room_bytes >= costs_.least_stored_bytes(kind);
    return has_room && items.next_copied < items.copy_densities.size() ? items.copy_densities[items.next_copied] : -1;
  }

  void place_first(Kind kind, std::size_t owner) {
    Items& items = items_[at(kind)];
    const std::size_t position = items.next++;
    if (items.next + kLookAhead < items.order.size()) {
      const int64_t ahead = items.order.node(items.next + kLookAhead);
      costs_.prefetch(kind, ahead);
      __builtin_prefetch(items.rank_of.data() + ahead);
    }
    const uint32_t node = items.order.node(position);
    const int64_t bytes = costs_.stored_bytes(kind, node);
    ++items.misses;
    if (bytes + index_.entry_bytes > gpus_[owner].room_bytes) return;
    items.misses = 0;
    for (Gpu& gpu : gpus_) enter(gpu);
    put(kind, node, bytes, gpus_[owner]);
    items.rank_of[node] = static_cast<uint32_t>(items.placed.nodes.size());
    items.placed.nodes.push_back(node);
    items.placed.owners.push_back(static_cast<uint16_t>(owner));
    items.holders.push_back(static_cast<uint8_t>(1u << owner));
    if (num_gpus() > 1) items.copy_densities.push_back(std::max(0.0f, items.of_copies[position]));
  }

  // On every other GPU with room.
  void place_copies(Kind kind) {
    Items& items = items_[at(kind)];
    const std::size_t rank = items.next_copied++;
    if (items.copy_densities[rank] == 0) return;
    const uint32_t node = items.placed.nodes[rank];
    const int64_t bytes = costs_.stored_bytes(kind, node);
    for (std::size_t gpu = 0; gpu < gpus_.size(); ++gpu) {
      if ((items.holders[rank] >> gpu & 1) != 0 || bytes > gpus_[gpu].room_bytes) continue;
      put(kind, node, bytes, gpus_[gpu]);
      items.holders[rank] = static_cast<uint8_t>(items.holders[rank] | 1u << gpu);
    }
  }

  void put(Kind kind, uint32_t node, int64_t bytes, Gpu& gpu) const {
    gpu.room_bytes -= bytes;
    gpu.plan.slabs[at(kind)].nodes.push_back(node);
    gpu.plan.slabs[at(kind)].bytes += bytes;
  }

  // One more row in a directory; a GPU that cannot pay for it knows only the rows so far, from now on.
  void enter(Gpu& gpu) const {
    if (!gpu.knows_all) return;
    if (index_.entry_bytes > gpu.room_bytes) {
      for (const Kind kind : kKinds) gpu.plan.slabs[at(kind)].num_entries = num_placed(kind);
      gpu.knows_all = false;
      gpu.room_bytes = 0;
      return;
    }
    gpu.room_bytes -= index_.entry_bytes;
    gpu.plan.index_bytes += index_.entry_bytes;
  }
  int64_t num_placed(Kind kind) const { return std::ssize(items_[at(kind)].placed.nodes); }

  void finish(Kind kind, std::size_t gpu) {
    if (gpus_[gpu].knows_all) gpus_[gpu].plan.slabs[at(kind)].num_entries = num_placed(kind);
  }

  Tier tier_of(const Items& items, Kind kind, std::size_t gpu, int64_t node) const {
    const uint32_t rank = items.rank_of[static_cast<std::size_t>(node)];
    if (rank == kNowhere) return Tier::kHost;
    if ((items.holders[rank] >> gpu & 1) != 0) return Tier::kLocal;
    return rank < gpus_[gpu].plan.slabs[at(kind)].num_entries ? Tier::kPeer : Tier::kHost;
  }

  // What each GPU reads from each tier.
  void predict(Kind kind) {
    const int64_t num_nodes = costs_.num_items(kind), num_chunks = (num_nodes + kChunk - 1) / kChunk;
    const Items& items = items_[at(kind)];
    std::vector<UseByTier> chunks(static_cast<std::size_t>(num_chunks) * gpus_.size());
#pragma omp parallel for schedule(dynamic) if (num_chunks > 1)
    for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
      UseByTier* sums = chunks.data() + static_cast<std::size_t>(chunk) * gpus_.size();
      for (int64_t node = chunk * kChunk; node < std::min(num_nodes, (chunk + 1) * kChunk); ++node) {
        const UseByTier use = costs_.uses(kind, counts_, node);
        for (std::size_t gpu = 0; gpu < gpus_.size(); ++gpu) {
          const Tier tier = tier_of(items, kind, gpu, node);
          sums[gpu][static_cast<std::size_t>(tier)] += use[static_cast<std::size_t>(tier)];
          if (tier == Tier::kHost) sums[gpu][kRemoteTier] += use[kRemoteTier];
          sums[gpu][kRecentTier] += use[kRecentTier];
        }
      }
    }
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      UseByTier& total = gpus_[i % gpus_.size()].plan.use[at(kind)];
      for (std::size_t tier = 0; tier < kNumTiers; ++tier) total[tier] += chunks[i][tier];
    }
  }

  const Costs& costs_;
  const IndexCost& index_;
  const Counts& counts_;
  std::vector<Gpu> gpus_;
  std::array<Items, kNumKinds> items_;
};

}  // namespace

Placement place_items(const Costs& costs, const IndexCost& index, const Counts& counts,
                      const std::vector<int64_t>& budget_bytes) {
  return Walk(costs, index, counts, budget_bytes).run();
}

}  // namespace cohort::cache
