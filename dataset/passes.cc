#include "dataset/passes.h"

#include <algorithm>

#include "base/checksum.h"
#include "base/uninitialized_vector.h"
#include "dataset/parallel.h"

namespace cohort::dataset {
namespace {

constexpr int64_t kListsAtOnce = 1024;
constexpr std::size_t kBits = 64;

using Bits = base::UninitializedVector<uint64_t>;

// Marks as bits, eight times as many of which are in a core's caches.
Bits bits_of(std::span<const bool> marks, const std::stop_token& stop) {
  Bits words((marks.size() + kBits - 1) / kBits);
  const auto pack = [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      words[i] = 0;
      for (std::size_t bit = 0; bit < std::min(kBits, marks.size() - i * kBits); ++bit) {
        words[i] |= uint64_t{marks[i * kBits + bit]} << bit;
      }
    }
  };
  for_chunks(std::ssize(words), stop, pack);
  return words;
}

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

void mark_targets(const base::CscRef& csc, std::span<const bool> is_marked, bool* reached,
                  const std::stop_token& stop) {
  const Bits bits = bits_of(is_marked, stop);
  csc.with_indices([&](const auto* indices) {
    const auto mark = [&](int64_t begin, int64_t end) {
      for (int64_t v = begin; v < end; ++v) {
        uint64_t found = 0;
        for (int64_t e = csc.indptr[v]; e < csc.indptr[v + 1]; ++e) {
          const auto source = static_cast<std::size_t>(indices[e]);
          found |= bits[source / kBits] >> source % kBits;
        }
        reached[v] |= (found & 1) != 0;
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
