// For each node in a tree of a disjoint batch, the first of the batch's visits that reaches it: a map with open
// addressing in GPU memory. What it holds does not depend on the order in which threads put it there.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/host_device.h"
#include "base/owners.h"
#include "sampler/trees.h"

namespace cohort::sampler {

struct alignas(16) TreeVisit {
  unsigned long long key;    // node_in_tree(); kNoTreeNode: none
  unsigned long long visit;  // the largest number where there is no key
};

struct TreeVisitsRef {
  TreeVisit* entries = nullptr;  // [2^bits], at most half of them with keys
  int bits = 0;

#ifdef __CUDACC__
  __device__ void put(uint64_t key, uint64_t visit) const {
    const uint64_t last = (uint64_t{1} << bits) - 1;
    for (uint64_t at = bucket_of_key(key, bits);; at = (at + 1) & last) {
      unsigned long long seen = *static_cast<volatile unsigned long long*>(&entries[at].key);
      if (seen == kNoTreeNode) seen = atomicCAS(&entries[at].key, kNoTreeNode, key);
      if (seen != kNoTreeNode && seen != key) continue;
      atomicMin(&entries[at].visit, static_cast<unsigned long long>(visit));
      return;
    }
  }

  // Of a key that an earlier kernel has put there.
  __device__ uint64_t find(uint64_t key) const {
    const uint64_t last = (uint64_t{1} << bits) - 1;
    uint64_t at = bucket_of_key(key, bits);
    while (entries[at].key != key) at = (at + 1) & last;
    return entries[at].visit;
  }
#endif
};

// Of the lists of a hop.
struct TreeLists {
  const int32_t* tree;        // int32 [lists], of each frontier node
  const int64_t* edge_times;  // int64 [E], of the relation; null: edges of any time
  const int64_t* times;       // int64 [trees], likewise
  int64_t window;             // see span_until()
  Draw draw;
  int64_t* first;  // int64 [lists], where the edges that may be drawn begin in the graph's indices
};

class TreeVisits {
 public:
  void clear(cudaStream_t stream);
  // Makes room for so many keys; those that are there stay.
  void reserve(int64_t num_keys, int max_blocks, cudaStream_t stream);
  TreeVisitsRef ref() const { return {entries_.data(), bits_}; }

 private:
  base::DeviceArray<TreeVisit> entries_;
  int bits_ = 0;
};

}  // namespace cohort::sampler
