// Sizes of a batch that the GPU counts while the host, which knows only bounds, has put all of the batch's kernels on
// the stream already (bounded_hops.cu).
#pragma once

#include <cstdint>

#include "base/tier_use.h"
#include "channel/layout.h"

namespace cohort::sampler {

// In GPU memory.
struct BatchCounts {
  int64_t too_small;                                 // not 0: a hop has more lists or edges than the host's bounds
  unsigned long long list_use[2 * base::kNumTiers];  // as base::ListUses
  int64_t first_node[channel::kMaxHops + 2];         // as SampledRef has them, of a graph of one type
  int64_t first_edge[channel::kMaxHops + 1];         // the same
  int32_t next_id;                                   // of the next node that is reached
};

// Those of a hop. Null: the host knows the sizes, and its pointers lead to the hop's own nodes and edges; else they
// lead to those of the batch.
struct HopCounts {
  int64_t* first_node = nullptr;  // int64 [3]: of the hop's lists, of the nodes that it reaches, and behind them
  int64_t* first_edge = nullptr;  // int64 [2]: of the hop, and behind it
  int64_t* too_small = nullptr;
  int32_t* next_id = nullptr;
  int64_t most_edges = 0;  // of the hop
  int64_t end_edge = 0;    // of the batch up to the hop, at most
};

}  // namespace cohort::sampler
