// The first word of a sparse row and where its parts lie: shared by the host and CUDA bodies. FORMAT.md 4.4.
#pragma once

#include <cstdint>

#include "ibp/profile_ref.h"

namespace cohort::ibp {

enum class ValueKind : uint32_t { kProfileConstant = 0, kRowConstant = 1, kNarrow = 2, kWide = 3 };

inline constexpr uint32_t kSparseHeaderBits = 32;

struct SparseRow {
  uint32_t num_nonzeros = 0;
  uint32_t num_groups = 0;  // of 32 columns, in the whole row
  ValueKind kind = ValueKind::kProfileConstant;
  bool bitmap = false;
  uint32_t index_bit = 0;  // where the index list, or the bitmap's top level, starts
  uint32_t group_bit = 0;  // bitmap: where its groups start; list: where the values start
  uint32_t value_bit = 0;  // set by place_values
  uint32_t end_bit = 0;
};

COHORT_HOST_DEVICE constexpr uint32_t make_sparse_header(uint32_t num_nonzeros, ValueKind kind, bool bitmap) {
  return num_nonzeros | (static_cast<uint32_t>(kind) << 24) | (uint32_t{bitmap} << 26);
}

COHORT_HOST_DEVICE constexpr ValueKind choose_value_kind(bool all_constant, bool all_equal, bool all_narrow) {
  if (all_constant) return ValueKind::kProfileConstant;
  if (all_equal) return ValueKind::kRowConstant;
  return all_narrow ? ValueKind::kNarrow : ValueKind::kWide;
}

// Bits stored for each non-zero.
COHORT_HOST_DEVICE inline uint32_t value_width(const ProfileRef& profile, ValueKind kind) {
  if (kind == ValueKind::kNarrow) return profile.value_bits;
  return kind == ValueKind::kWide ? profile.element_bytes * 8 : 0;
}

COHORT_HOST_DEVICE inline uint32_t constant_width(const ProfileRef& profile, ValueKind kind) {
  return kind == ValueKind::kRowConstant ? profile.element_bytes * 8 : 0;
}

COHORT_HOST_DEVICE inline uint32_t bitmap_bits(const ProfileRef& profile, uint32_t groups_set) {
  return (profile.num_columns + 31) / 32 + groups_set * 32;
}

COHORT_HOST_DEVICE inline bool bitmap_is_shorter(const ProfileRef& profile, uint32_t num_nonzeros,
                                                 uint32_t groups_set) {
  return bitmap_bits(profile, groups_set) < num_nonzeros * profile.index_bits;
}

// The whole row's bits, before rounding up to a word.
COHORT_HOST_DEVICE inline uint32_t sparse_bits(const ProfileRef& profile, ValueKind kind, uint32_t num_nonzeros,
                                               bool bitmap, uint32_t groups_set) {
  const uint32_t indices = bitmap ? bitmap_bits(profile, groups_set) : num_nonzeros * profile.index_bits;
  return kSparseHeaderBits + constant_width(profile, kind) + indices + num_nonzeros * value_width(profile, kind);
}

// Reads the first word; false when it cannot be one.
COHORT_HOST_DEVICE inline bool read_sparse_header(const ProfileRef& profile, uint32_t word, SparseRow& row) {
  row.num_nonzeros = word & 0xffffffu;
  row.kind = static_cast<ValueKind>((word >> 24) & 3);
  row.bitmap = ((word >> 26) & 1) != 0;
  row.num_groups = (profile.num_columns + 31) / 32;
  row.index_bit = kSparseHeaderBits + constant_width(profile, row.kind);
  row.group_bit = row.index_bit + (row.bitmap ? row.num_groups : 0);
  return (word >> 27) == 0 && row.num_nonzeros <= profile.num_columns;
}

// Completes the layout, once the bitmap's set groups are counted (a list ignores them).
COHORT_HOST_DEVICE inline void place_values(const ProfileRef& profile, SparseRow& row, uint32_t groups_set) {
  row.value_bit = row.group_bit + (row.bitmap ? groups_set * 32 : row.num_nonzeros * profile.index_bits);
  row.end_bit = row.value_bit + row.num_nonzeros * value_width(profile, row.kind);
}

}  // namespace cohort::ibp
