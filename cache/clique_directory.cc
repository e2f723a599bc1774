#include "cache/clique_directory.h"

#include <string>

#include "base/check.h"
#include "ibp/encoded_ref.h"

namespace cohort::cache {
namespace {

// Stands for the entry that the slab of `owner` will give: no entry has bits 59 to 62 set.
constexpr uint64_t wanted_from(uint64_t owner) { return kNoEntry - 1 - owner; }

void check_sizes(int member, std::span<const FilledSlab> slabs) {
  if (slabs.size() > ibp::kMaxRegions) {
    throw base::Error({"clique", "at most " + std::to_string(ibp::kMaxRegions) + " GPUs", std::to_string(slabs.size()),
                       "an entry names a GPU with 3 bits; divide the GPUs into smaller cliques"});
  }
  base::require(member >= 0 && static_cast<std::size_t>(member) < slabs.size(),
                "a directory is for a GPU of the clique");
  for (const FilledSlab& slab : slabs) {
    base::require(slab.nodes.size() == slab.entries.size(), "every row of a slab has an entry");
  }
}

// Takes over the entries of one slab; returns how many of them were wanted. A GPU's own are all taken.
int64_t take_entries(const FilledSlab& slab, uint64_t region, bool own, std::span<uint64_t> entry_of) {
  const auto num_rows = static_cast<int64_t>(slab.nodes.size());
  int64_t num_wanted = 0;
#pragma omp parallel for reduction(+ : num_wanted)
  for (int64_t i = 0; i < num_rows; ++i) {
    const auto at = static_cast<std::size_t>(i);
    uint64_t& entry = entry_of[slab.nodes[at]];
    const bool wanted = own ? entry != kNoEntry : entry == wanted_from(region);
    if (own || wanted) entry = ibp::entry_in_region(slab.entries[at], static_cast<uint32_t>(region));
    num_wanted += wanted;
  }
  return num_wanted;
}

}  // namespace

base::UninitializedVector<uint64_t> entries_seen_by(int member, const CliqueRows& rows, int64_t num_entries,
                                                    std::span<const FilledSlab> slabs, int64_t num_nodes) {
  check_sizes(member, slabs);
  base::require(num_entries <= static_cast<int64_t>(rows.nodes.size()), "a directory knows only rows of the clique");
  base::UninitializedVector<uint64_t> entry_of(static_cast<std::size_t>(num_nodes));
#pragma omp parallel for
  for (int64_t node = 0; node < num_nodes; ++node) entry_of[static_cast<std::size_t>(node)] = kNoEntry;
#pragma omp parallel for
  for (int64_t i = 0; i < num_entries; ++i) {
    const auto at = static_cast<std::size_t>(i);
    entry_of[rows.nodes[at]] = wanted_from(rows.owners[at]);
  }
  const auto own = static_cast<std::size_t>(member);
  int64_t num_found = take_entries(slabs[own], own, true, entry_of);
  for (std::size_t region = 0; region < slabs.size(); ++region) {
    if (region != own) num_found += take_entries(slabs[region], region, false, entry_of);
  }
  base::require(num_found == num_entries, "every row of the clique lies in the slab of its owner");
  return entry_of;
}

DirectoryArrays directory_seen_by(int member, const Plan& plan, std::size_t clique, Kind kind,
                                  std::span<const std::span<const uint64_t>> entries, int64_t num_nodes) {
  const CliquePlan& of_clique = plan.cliques[clique];
  base::require(entries.size() == of_clique.gpus.size(), "every GPU of the clique has a slab");
  const auto at_kind = static_cast<std::size_t>(kind);
  const auto slab_of = [&](std::size_t position) -> const Slab& {
    return plan.gpus[static_cast<std::size_t>(of_clique.gpus[position])].slabs[at_kind];
  };
  std::vector<FilledSlab> slabs;
  for (std::size_t i = 0; i < entries.size(); ++i) slabs.push_back({slab_of(i).nodes, entries[i]});
  const int64_t num_entries = slab_of(static_cast<std::size_t>(member)).num_entries;
  return DirectoryArrays(entries_seen_by(member, of_clique.rows[at_kind], num_entries, slabs, num_nodes));
}

}  // namespace cohort::cache
