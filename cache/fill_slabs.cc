#include "cache/fill_slabs.h"

#include <numeric>

#include "base/check.h"
#include "base/device.h"
#include "base/format.h"
#include "base/side_by_side.h"
#include "cache/clique_directory.h"
#include "cache/decode_rows.h"

namespace cohort::cache {
namespace {

const Slab& slab_of(const Plan& plan, int gpu, Kind kind) {
  return plan.gpus[static_cast<std::size_t>(gpu)].slabs[static_cast<std::size_t>(kind)];
}

void require_room(int64_t needed, int gpu) {
  base::demand_bytes(needed, base::free_device_bytes(), base::format("memory of GPU {}", gpu), " for the cache",
                     "use a smaller --cache-ratio", "free");
}

void read_peers(int gpu, std::span<const int> peers) {
  base::choose_gpu(gpu);
  for (const int peer : peers) {
    if (peer == gpu || base::open_peer(peer)) continue;
    throw base::Error({base::format("GPU {}", gpu), base::format("access to the memory of GPU {}", peer), "no access",
                       "use --cliques none"});
  }
}

std::vector<int> ordinals_of(const CliquePlan& clique, std::span<const int> gpus) {
  std::vector<int> ordinals;
  for (const int gpu : clique.gpus) ordinals.push_back(gpus[static_cast<std::size_t>(gpu)]);
  return ordinals;
}

// Makes the slabs of one clique and tells each of its GPUs of them: make(slab) -> std::shared_ptr<a slab>, on its GPU;
// tell(member, gpu of the plan, directory, slabs), on that GPU. Slabs are made side by side; directories one after the
// other, with all threads: each takes memory for every node, as filling_bytes() counts once.
template <typename Make, typename Tell>
void fill(const Plan& plan, std::size_t clique, Kind kind, std::span<const int> gpus, int64_t num_nodes, Make make,
          Tell tell) {
  const std::vector<int>& members = plan.cliques[clique].gpus;
  const std::vector<int> ordinals = ordinals_of(plan.cliques[clique], gpus);
  for (const int gpu : ordinals) read_peers(gpu, ordinals);
  std::vector<decltype(make(Slab{}))> slabs(members.size());
  base::side_by_side(members.size(), [&](std::size_t i) {
    base::choose_gpu(ordinals[i]);
    const Slab& slab = slab_of(plan, members[i], kind);
    require_room(plan.gpus[static_cast<std::size_t>(members[i])].index_bytes + slab.bytes, ordinals[i]);
    slabs[i] = make(slab);
  });
  std::vector<std::span<const uint64_t>> entries;
  for (const auto& slab : slabs) entries.push_back(slab->entries());
  for (std::size_t i = 0; i < members.size(); ++i) {
    base::choose_gpu(ordinals[i]);
    const auto member = static_cast<int>(i);
    tell(i, static_cast<std::size_t>(members[i]),
         Directory(directory_seen_by(member, plan, clique, kind, entries, num_nodes)), slabs);
  }
}

}  // namespace

std::vector<SlabView> fill_row_slabs(const Plan& plan, std::span<const int> gpus, const SlabRows& rows,
                                     int64_t num_nodes) {
  std::vector<SlabView> views(gpus.size());
  const auto make = [&](const Slab& slab) { return std::make_shared<const RowSlab>(rows, slab.nodes, slab.bytes); };
  const auto tell = [&](std::size_t member, std::size_t gpu, Directory directory, const auto& slabs) {
    SlabView& view = views[gpu];
    view.directory = std::move(directory);
    view.step_bytes = ibp::kLineBytes;
    for (std::size_t i = 0; i < slabs.size(); ++i) {
      view.regions[i] = slabs[i]->region();
      view.step_bytes = std::gcd(view.step_bytes, slabs[i]->step_bytes());
    }
    view.own_region = static_cast<uint32_t>(member);
    view.profile = rows.profile();
    view.max_coded_bytes = rows.max_coded_bytes();
    view.slabs = slabs;
  };
  for (std::size_t clique = 0; clique < plan.cliques.size(); ++clique) {
    fill(plan, clique, Kind::kFeature, gpus, num_nodes, make, tell);
  }
  return views;
}

std::vector<base::SharedGpuBytes> all_rows_on(std::span<const int> gpus, const SlabRows& rows, int64_t num_nodes) {
  base::require(rows.profile().codec == ibp::Codec::kRaw, "rows as they are");
  const int64_t row_bytes = rows.profile().row_bytes(), bytes = num_nodes * raw_row_stride(row_bytes);
  std::vector<base::SharedGpuBytes> tables(gpus.size());
  std::vector<RowsOnGpu> targets(gpus.size());
  base::side_by_side(gpus.size(), [&](std::size_t i) {
    base::choose_gpu(gpus[i]);
    require_room(bytes, gpus[i]);
    tables[i] = base::SharedGpuBytes(static_cast<std::size_t>(bytes), "allocate all feature rows");
    targets[i] = {gpus[i], tables[i].data()};
  });
  const std::optional<SlabRows> encoded = rows.as_encoded();
  if (encoded && raw_row_stride(row_bytes) == row_bytes) {
    decode_rows(*encoded, num_nodes, targets);
    return tables;
  }
  std::vector<uint32_t> nodes(static_cast<std::size_t>(num_nodes));
  std::iota(nodes.begin(), nodes.end(), 0u);
  base::side_by_side(gpus.size(), [&](std::size_t i) {
    base::choose_gpu(gpus[i]);
    store_rows(rows, nodes, tables[i].data(), bytes);
  });
  return tables;
}

CachedListsRef CachedLists::ref() const {
  CachedListsRef ref;
  ref.directory = directory.ref();
  for (std::size_t i = 0; i < slabs.size(); ++i) ref.slabs[i] = slabs[i]->data();
  ref.own = own;
  return ref;
}

std::vector<CachedLists> fill_list_slabs(const Plan& plan, std::span<const int> gpus,
                                         const std::vector<RelationLists>& relations) {
  std::vector<CachedLists> cached(gpus.size());
  const auto make = [&](const Slab& slab) { return std::make_shared<const ListSlab>(relations, slab); };
  const auto tell = [&](std::size_t member, std::size_t gpu, Directory directory, const auto& slabs) {
    cached[gpu] = {std::move(directory), slabs, static_cast<uint32_t>(member)};
  };
  for (std::size_t clique = 0; clique < plan.cliques.size(); ++clique) {
    fill(plan, clique, Kind::kTopology, gpus, end_of(relations), make, tell);
  }
  return cached;
}

}  // namespace cohort::cache
