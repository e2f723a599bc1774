// The sample that a profile is fitted to, and what encoding it costs. Internal to ibp/.
#pragma once

#include <cstdint>
#include <vector>

#include "ibp/ibp.h"

namespace cohort::ibp {

// The rows that fit() looks at: one from each of equal parts of the table, drawn within its part. Throws Error on
// options that fit() does not take.
std::vector<int64_t> sample_rows(int64_t num_rows, const FitOptions& options);

// A profile with the table's shape and nothing learnt: codec raw.
Profile blank_profile(const RowTable& rows);

// Encoded bytes of every row, of codec planes those of plane A; 0 = raw.
std::vector<uint32_t> coded_lengths(const RowTable& rows, const Profile& profile);

// Sum of stored bytes: a raw row counts row_bytes rounded up to 4.
uint64_t total_bytes(const std::vector<uint32_t>& lengths, uint32_t row_bytes);

}  // namespace cohort::ibp
