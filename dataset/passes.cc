#include "dataset/passes.h"

#include "base/checksum.h"
#include "dataset/parallel.h"

namespace cohort::dataset {
namespace {

constexpr int64_t kListsAtOnce = 1024;

}  // namespace

void digest_rows(const std::byte* rows, std::size_t row_bytes, const int64_t* indptr, std::span<uint64_t> digests,
                 const std::stop_token& stop) {
  const auto digest = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto first = static_cast<std::size_t>(indptr ? indptr[i] : i);
      const auto last = static_cast<std::size_t>(indptr ? indptr[i + 1] : i + 1);
      uint64_t& kept = digests[static_cast<std::size_t>(i)];
      kept = base::xxh64({rows + first * row_bytes, (last - first) * row_bytes}, kept);
    }
  };
  for_chunks(std::ssize(digests), stop, digest, kListsAtOnce);
}

void mark_targets(const base::CscRef& csc, const bool* is_marked, bool* reached, const std::stop_token& stop) {
  csc.with_indices([&](const auto* indices) {
    const auto mark = [&](int64_t begin, int64_t end) {
      for (int64_t v = begin; v < end; ++v) {
        bool is_reached = reached[v];
        for (int64_t e = csc.indptr[v]; !is_reached && e < csc.indptr[v + 1]; ++e) is_reached = is_marked[indices[e]];
        reached[v] = is_reached;
      }
    };
    for_chunks(csc.num_nodes, stop, mark, kListsAtOnce);
  });
}

void count_degrees(const base::CscRef& csc, const int64_t* times, int64_t oldest, int64_t latest, int32_t* degrees,
                   const std::stop_token& stop) {
  csc.with_indices([&](const auto* indices) {
    const auto count = [&](int64_t begin, int64_t end) {
      for (int64_t v = begin; v < end; ++v) {
        int32_t degree = 0;
        for (int64_t e = csc.indptr[v]; e < csc.indptr[v + 1]; ++e) {
          degree += indices[e] != v && (!times || (times[e] >= oldest && times[e] <= latest));
        }
        degrees[v] = degree;
      }
    };
    for_chunks(csc.num_nodes, stop, count, kListsAtOnce);
  });
}

}  // namespace cohort::dataset
