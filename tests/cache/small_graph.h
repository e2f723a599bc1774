// Small planner inputs that own their arrays.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "cache/plan/plan.h"

namespace cohort::cache {

inline constexpr std::size_t kF = 0, kT = 1;

struct OwnedCounts {
  std::vector<uint32_t> node_reads, expansions;
  std::vector<uint64_t> edges_read;
  int64_t num_batches = 10;
};

struct SmallInput {
  std::vector<int64_t> indptr{0};
  std::vector<uint32_t> row_bytes;       // used when not empty
  std::vector<uint32_t> host_row_bytes;  // likewise
  bool has_lists = true;                 // else they are no business of the plan
  std::vector<OwnedCounts> counts;
  PlanInput input;

  SmallInput() { input.sizes.tables.resize(1); }

  const PlanInput& view() {
    table().num_rows = num_nodes();
    table().slab_rows.each = row_bytes.empty() ? nullptr : row_bytes.data();
    table().host_rows.each = host_row_bytes.empty() ? nullptr : host_row_bytes.data();
    input.sizes.relations.clear();
    if (has_lists) input.sizes.relations = {{{num_nodes(), indptr.back(), indptr.data(), nullptr, 4}}};
    input.counts.clear();
    for (const OwnedCounts& c : counts) {
      input.counts.push_back({c.num_batches, c.node_reads.data(), c.expansions.data(), c.edges_read.data()});
    }
    return input;
  }
  int64_t num_nodes() const { return static_cast<int64_t>(indptr.size()) - 1; }
  TableSizes& table() { return input.sizes.tables[0]; }
  int num_gpus() const { return static_cast<int>(input.budget_bytes.size()); }
};

// Bandwidths of 1500, 360 and 51 GB/s.
inline Links measured_links() { return {Link{1500e9}, Link{360e9}, Link{51e9}}; }

struct SmallOptions {
  int64_t num_nodes = 5;
  bool equal_degrees = false;      // every list of 14 neighbours: 64 bytes
  bool equal_rows = true;          // every row of 64 bytes
  bool counts_per_clique = false;  // else one for all
};

// Random counts, from none to 20 reads a node; `cliques` and `budgets` as in PlanInput.
inline SmallInput random_input(uint64_t seed, const SmallOptions& options, std::vector<std::vector<int>> cliques,
                               std::vector<int64_t> budgets) {
  SmallInput small;
  auto draw = [key = base::key_of(seed), n = uint64_t{0}](uint64_t bound) mutable {
    return base::random_below(bound, key, n++, 0);
  };
  for (int64_t node = 0; node < options.num_nodes; ++node) {
    small.indptr.push_back(small.indptr.back() + (options.equal_degrees ? 14 : static_cast<int64_t>(draw(40))));
    if (!options.equal_rows) small.row_bytes.push_back(static_cast<uint32_t>(16 + 4 * draw(40)));
  }
  small.counts.resize(options.counts_per_clique ? cliques.size() : 1);
  for (OwnedCounts& counts : small.counts) {
    for (int64_t node = 0; node < options.num_nodes; ++node) {
      const auto at = static_cast<std::size_t>(node);
      const auto degree = static_cast<uint64_t>(small.indptr[at + 1] - small.indptr[at]);
      counts.node_reads.push_back(static_cast<uint32_t>(draw(21)));
      counts.expansions.push_back(static_cast<uint32_t>(draw(counts.node_reads.back() + 1)));
      counts.edges_read.push_back(counts.expansions.back() * std::min<uint64_t>(degree, 10));
    }
  }
  small.table().slab_rows.bytes = 64;
  small.input.cliques = std::move(cliques);
  small.input.budget_bytes = std::move(budgets);
  small.input.links = measured_links();
  small.input.index = {{}, 0, 0};
  return small;
}

}  // namespace cohort::cache
