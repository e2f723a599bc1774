// Codec "dictionary" on one row by one warp. FORMAT.md 4.7. Internal to ibp/.
#pragma once

#include "ibp/device_bits.cuh"
#include "ibp/profile_ref.h"

namespace cohort::ibp {

__device__ inline bool decode_dictionary_warp(const ProfileRef& profile, const uint32_t* words, uint32_t bytes,
                                              std::byte* out) {
  if (bytes < dictionary_row_bytes(profile)) return false;
  for (uint32_t column = lane_id(); column < profile.num_columns; column += 32) {
    const uint32_t code = read_field(words, column * profile.code_bits, profile.code_bits);
    store_bytes(out + column * profile.element_bytes, __ldg(profile.elements + code), profile.element_bytes);
  }
  return true;
}

// `words` has room for room_words(profile.row_bytes) words. Returns the bytes of the row, or 0 if it has to stay raw.
__device__ inline uint32_t encode_dictionary_warp(const ProfileRef& profile, const std::byte* row, uint32_t* words) {
  const uint32_t bytes = dictionary_row_bytes(profile);
  if (bytes > profile.most_coded_bytes) return 0;
  for (uint32_t i = lane_id(); i < bytes / 4; i += 32) words[i] = 0;
  __syncwarp();
  bool known = true;
  for (uint32_t column = lane_id(); column < profile.num_columns; column += 32) {
    const uint64_t element = load_element(row, profile.element_bytes, column);
    const uint32_t code = code_of(profile, element);
    known = known && profile.elements[code] == element;
    if (known) or_field(words, column * profile.code_bits, profile.code_bits, code);
  }
  known = __all_sync(kAllLanes, known);
  __syncwarp();
  return known ? bytes : 0;
}

}  // namespace cohort::ibp
