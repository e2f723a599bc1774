// Passes over all rows or all lists of in-neighbours of a graph: digests of them, what changes reach, and degrees.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>

#include "base/csc_ref.h"

namespace cohort::dataset {

// digests[i] becomes the digest of itself and of rows [indptr[i], indptr[i + 1]), of row_bytes bytes each; without an
// indptr, of row i.
void digest_rows(const std::byte* rows, std::size_t row_bytes, const int64_t* indptr, std::span<uint64_t> digests,
                 const std::stop_token& stop);

// reached[v] becomes true where one of the in-neighbours of v is marked; bool [V] of the target type and of the
// sources'.
void mark_targets(const base::CscRef& csc, std::span<const bool> is_marked, bool* reached, const std::stop_token& stop);

// degrees[v] = the in-neighbours of v but v itself: int32 [V]; with times int64 [E], by edges of a time in
// [oldest, latest].
void count_degrees(const base::CscRef& csc, const int64_t* times, int64_t oldest, int64_t latest, int32_t* degrees,
                   const std::stop_token& stop);

}  // namespace cohort::dataset
