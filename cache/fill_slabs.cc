#include "cache/fill_slabs.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/device.h"
#include "cache/clique_directory.h"

namespace cohort::cache {
namespace {

using base::cuda_check;

void choose(int gpu) { cuda_check(cudaSetDevice(gpu), "choose a GPU of the cache"); }

const Slab& row_slab(const Plan& plan, int gpu) {
  return plan.gpus[static_cast<std::size_t>(gpu)].slabs[static_cast<std::size_t>(Kind::kFeature)];
}

void require_room(int64_t needed, int gpu) {
  const int64_t free = base::free_device_bytes();
  if (needed <= free) return;
  throw base::Error({fmt::format("memory of GPU {}", gpu),
                     base::format_bytes(static_cast<double>(needed)) + " for cached rows",
                     base::format_bytes(static_cast<double>(free)) + " free", "use a smaller --cache-ratio"});
}

void read_peers(int gpu, std::span<const int> peers) {
  choose(gpu);
  for (const int peer : peers) {
    if (peer == gpu) continue;
    const cudaError_t status = cudaDeviceEnablePeerAccess(peer, 0);
    if (status == cudaErrorPeerAccessAlreadyEnabled) {
      cudaGetLastError();  // takes the error back
    } else if (status == cudaErrorPeerAccessUnsupported) {
      throw base::Error({fmt::format("GPU {}", gpu), fmt::format("access to the memory of GPU {}", peer), "none",
                         "use --cliques none"});
    } else {
      cuda_check(status, "get access to a peer's memory");
    }
  }
}

// One clique's slabs, by member.
std::vector<std::shared_ptr<const RowSlab>> fill(const Plan& plan, const std::vector<int>& members,
                                                 std::span<const int> gpus, SlabRows& rows) {
  std::vector<std::shared_ptr<const RowSlab>> slabs;
  for (const int member : members) {
    const int gpu = gpus[static_cast<std::size_t>(member)];
    choose(gpu);
    const Slab& slab = row_slab(plan, member);
    require_room(plan.gpus[static_cast<std::size_t>(member)].index_bytes + slab.bytes, gpu);
    slabs.push_back(std::make_shared<const RowSlab>(rows, slab.nodes, slab.bytes));
  }
  return slabs;
}

}  // namespace

std::vector<SlabView> fill_slabs(const Plan& plan, std::span<const int> gpus, SlabRows& rows, int64_t num_nodes) {
  std::vector<SlabView> views(gpus.size());
  for (std::size_t clique = 0; clique < plan.cliques.size(); ++clique) {
    const std::vector<int>& members = plan.cliques[clique].gpus;
    if (members.size() > std::size_t{ibp::kMaxRegions}) {
      throw base::Error({"cliques", fmt::format("at most {} GPUs in each", ibp::kMaxRegions),
                         std::to_string(members.size()), "use --cliques, for example 2x8"});
    }
    std::vector<int> ordinals;
    for (const int member : members) ordinals.push_back(gpus[static_cast<std::size_t>(member)]);
    for (const int gpu : ordinals) read_peers(gpu, ordinals);
    const auto slabs = fill(plan, members, gpus, rows);
    std::vector<std::span<const uint64_t>> entries;
    for (const auto& slab : slabs) entries.push_back(slab->entries());
    for (std::size_t i = 0; i < members.size(); ++i) {
      choose(ordinals[i]);
      SlabView& view = views[static_cast<std::size_t>(members[i])];
      view.directory =
          Directory(directory_seen_by(static_cast<int>(i), plan, clique, Kind::kFeature, entries, num_nodes));
      for (std::size_t peer = 0; peer < slabs.size(); ++peer) view.regions[peer] = slabs[peer]->region();
      view.own_region = static_cast<uint32_t>(i);
      view.profile = rows.profile();
      view.max_coded_bytes = rows.max_coded_bytes();
      view.slabs = slabs;
    }
  }
  return views;
}

}  // namespace cohort::cache
