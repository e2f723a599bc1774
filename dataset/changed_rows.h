// What has changed in a graph since digests of it were made, and what that reaches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/checksum.h"
#include "base/csc_ref.h"
#include "dataset/parallel.h"

namespace cohort::dataset {

// digests[i] becomes the digest of itself and of rows [indptr[i], indptr[i + 1]), of row_bytes bytes each; without an
// indptr, of row i.
inline void digest_rows(const std::byte* rows, std::size_t row_bytes, const int64_t* indptr,
                        std::span<uint64_t> digests, const std::stop_token& stop) {
  constexpr int64_t kDigestsAtOnce = 1024;
  const auto digest = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto first = static_cast<std::size_t>(indptr ? indptr[i] : i);
      const auto last = static_cast<std::size_t>(indptr ? indptr[i + 1] : i + 1);
      uint64_t& kept = digests[static_cast<std::size_t>(i)];
      kept = base::xxh64({rows + first * row_bytes, (last - first) * row_bytes}, kept);
    }
  };
  for_chunks(static_cast<int64_t>(digests.size()), stop, digest, kDigestsAtOnce);
}

// reached[v] becomes true where one of the in-neighbours of v is marked; bool [V] of the target type and of the
// sources'.
inline void mark_targets(const base::CscRef& csc, const bool* is_marked, bool* reached, const std::stop_token& stop) {
  constexpr int64_t kTargetsAtOnce = 1024;
  csc.with_indices([&](const auto* indices) {
    const auto mark = [&](int64_t begin, int64_t end) {
      for (int64_t v = begin; v < end; ++v) {
        bool is_reached = reached[v];
        for (int64_t e = csc.indptr[v]; !is_reached && e < csc.indptr[v + 1]; ++e) is_reached = is_marked[indices[e]];
        reached[v] = is_reached;
      }
    };
    for_chunks(csc.num_nodes, stop, mark, kTargetsAtOnce);
  });
}

}  // namespace cohort::dataset
