// Decoding one row by one warp. Internal to ibp/.
//
// A decoder may read up to kReadAheadBytes beyond a coded row, and ignores what it finds there.
#pragma once

#include <type_traits>

#include "ibp/device_bits.cuh"
#include "ibp/device_dictionary.cuh"
#include "ibp/device_pairs.cuh"
#include "ibp/device_singles.cuh"
#include "ibp/encoded_ref.h"
#include "ibp/forms.h"
#include "ibp/profile_ref.h"
#include "ibp/sparse_header.h"

namespace cohort::ibp {

inline constexpr uint32_t kReadAheadBytes = 16;

// ---- invariant -----------------------------------------------------------------------------------------------------

// One lane's part of a group of 32 chunks.
template <typename Chunk>
struct ChunkPart {
  ChunkCode<Chunk> code;
  uint32_t index = 0, width = 0, bit = 0;
  bool active = false, match = false;
};

template <typename Chunk>
__device__ inline ChunkPart<Chunk> open_chunk(const ProfileRef& profile, const ChunkCode<Chunk>* codes,
                                              const uint32_t* words, uint32_t first) {
  ChunkPart<Chunk> part;
  part.index = first + lane_id();
  part.active = part.index < profile.num_chunks;
  if (!part.active) return part;
  part.code = load_code(codes + part.index);
  part.match = ((words[first / 32] >> lane_id()) & 1) != 0;
  part.width = uint32_t{sizeof(Chunk)} * 8 - (part.match ? ones_of(part.code.mask) : 0);
  return part;
}

template <typename Chunk>
__device__ inline void close_chunk(const ProfileRef& profile, const uint32_t* words, const ChunkPart<Chunk>& part,
                                   std::byte* out) {
  if (!part.active) return;
  auto chunk = static_cast<Chunk>(part.width ? read_field_wide(words, part.bit, part.width) : 0);
  if (part.match) chunk = restore_bits(part.code, chunk);
  const uint32_t offset = part.index * uint32_t{sizeof(Chunk)};
  store_word(out, profile.row_bytes, offset / 4, static_cast<uint32_t>(chunk));
  if (sizeof(Chunk) == 8 && offset + 4 < profile.row_bytes) {
    store_word(out, profile.row_bytes, offset / 4 + 1, static_cast<uint32_t>(uint64_t{chunk} >> 32));
  }
}

// Two groups of 32 chunks a turn: their widths share one prefix sum (a group is at most 2048 bits long).
template <typename Chunk>
__device__ bool decode_chunks_warp(const ProfileRef& profile, const ChunkCode<Chunk>* codes, const uint32_t* words,
                                   uint32_t bytes, std::byte* out) {
  const uint32_t header_words = (profile.num_chunks + 31) / 32;
  if (bytes < header_words * 4) return false;
  uint32_t first_bit = header_words * 32;
  for (uint32_t first = 0; first < profile.num_chunks; first += 64) {
    ChunkPart<Chunk> low = open_chunk(profile, codes, words, first);
    ChunkPart<Chunk> high = open_chunk(profile, codes, words, first + 32);
    uint32_t total = 0;
    const uint32_t before = exclusive_sum_warp(low.width | (high.width << 16), total);
    low.bit = first_bit + (before & 0xffff);
    high.bit = first_bit + (total & 0xffff) + (before >> 16);
    first_bit += (total & 0xffff) + (total >> 16);
    if (first_bit > bytes * 8) return false;  // the same in every lane
    close_chunk(profile, words, low, out);
    close_chunk(profile, words, high, out);
  }
  return true;
}

// ---- sparse --------------------------------------------------------------------------------------------------------

// Element `rank` of the row's set columns.
__device__ inline uint64_t sparse_value(const ProfileRef& profile, const SparseRow& row, const uint32_t* words,
                                        uint64_t constant, uint32_t rank) {
  const uint32_t width = value_width(profile, row.kind);
  if (width == 0) return constant;
  const uint64_t field = read_field_wide(words, row.value_bit + rank * width, width);
  return row.kind == ValueKind::kNarrow ? field | (profile.value_prefix << width) : field;
}

__device__ inline bool scatter_list_warp(const ProfileRef& profile, const SparseRow& row, const uint32_t* words,
                                         uint64_t constant, std::byte* out) {
  bool ok = true;
  for (uint32_t i = lane_id(); i < row.num_nonzeros; i += 32) {
    const uint32_t column = read_field(words, row.index_bit + i * profile.index_bits, profile.index_bits);
    ok = ok && column < profile.num_columns;
    if (!ok) continue;
    store_bytes(out + column * profile.element_bytes, sparse_value(profile, row, words, constant, i),
                profile.element_bytes);
  }
  return __all_sync(kAllLanes, ok);
}

// Lane l takes groups l, l + 32, ...; their words and values are found by prefix sums over the warp.
__device__ inline bool scatter_bitmap_warp(const ProfileRef& profile, const SparseRow& row, const uint32_t* words,
                                           uint64_t constant, std::byte* out) {
  uint32_t groups_before = 0, ones_before = 0;
  bool ok = true;
  for (uint32_t first = 0; first < row.num_groups; first += 32) {
    const uint32_t group = first + lane_id();
    const bool set = group < row.num_groups && read_field(words, row.index_bit + group, 1);
    const uint32_t sets = __ballot_sync(kAllLanes, set);
    uint32_t word = set ? read_field(words, row.group_bit + (groups_before + ballots_below(sets)) * 32, 32) : 0;
    uint32_t total = 0;
    uint32_t rank = ones_before + exclusive_sum_warp(__popc(word), total);
    groups_before += __popc(sets);
    ones_before += total;
    if (ones_before > row.num_nonzeros) return false;  // the same in every lane
    for (; word; word &= word - 1, ++rank) {
      const uint32_t column = group * 32 + __ffs(word) - 1;
      ok = ok && column < profile.num_columns;
      if (!ok) break;
      store_bytes(out + column * profile.element_bytes, sparse_value(profile, row, words, constant, rank),
                  profile.element_bytes);
    }
  }
  return __all_sync(kAllLanes, ok && ones_before == row.num_nonzeros);
}

__device__ inline bool decode_sparse_warp(const ProfileRef& profile, const uint32_t* words, uint32_t bytes,
                                          std::byte* out) {
  SparseRow row;
  if (bytes < 4 || !read_sparse_header(profile, words[0], row) || row.group_bit > bytes * 8) return false;
  zero_row_warp(out, profile.row_bytes);
  uint32_t groups = 0;
  for (uint32_t first = 0; row.bitmap && first < row.num_groups; first += 32) {
    const uint32_t group = first + lane_id();
    const bool set = group < row.num_groups && read_field(words, row.index_bit + group, 1);
    groups += __popc(__ballot_sync(kAllLanes, set));
  }
  place_values(profile, row, groups);
  if (row.end_bit > bytes * 8) return false;
  uint64_t constant = profile.constant;
  if (row.kind == ValueKind::kRowConstant) {
    constant = read_field_wide(words, kSparseHeaderBits, profile.element_bytes * 8);
  }
  __syncwarp();  // the zeros are written before the elements
  return row.bitmap ? scatter_bitmap_warp(profile, row, words, constant, out)
                    : scatter_list_warp(profile, row, words, constant, out);
}

// ---- any row -------------------------------------------------------------------------------------------------------

// Fewer bytes are no coded row, whatever they are.
COHORT_HOST_DEVICE inline uint32_t least_coded_bytes(const ProfileRef& profile) {
  return has_codes(profile.codec) ? profile.escape_offset_bytes() : 0;
}

// The 32-bit words that a lane stores at once: 4, 2 or 1, as the alignment of rows in the output allows, which itself
// is at a multiple of 16.
inline uint32_t words_at_once(uint32_t row_bytes) { return row_bytes % 16 == 0 ? 4 : row_bytes % 8 == 0 ? 2 : 1; }

// Decodes rows of one profile; kWords is at most words_at_once().
template <Form form, uint32_t kWords>
class RowDecoder {
 public:
  static constexpr Form kForm = form;
  __device__ explicit RowDecoder(const ProfileRef& profile) : profile_(profile), exponent_(profile) {}

  __device__ uint32_t least_bytes() const { return kHasCodes ? profile_.escape_offset_bytes() : 0; }

  // Decodes a coded row of at least least_bytes() into out[0 .. row_bytes-1], or half of that if is_rounded(form).
  // False, in every lane, when it is none; `out` then holds anything. kPlanes: `plane_b` of the row.
  __device__ bool decode(const uint32_t* words, uint32_t bytes, std::byte* out,
                         const uint32_t* plane_b = nullptr) const {
    if constexpr (kInPlanes) return exponent_.decode(words, bytes, out, plane_b);
    if constexpr (kSingles || kPairs || kLayers) return exponent_.decode(words, bytes, out);
    if constexpr (form == Form::kChunks4) return decode_chunks_warp(profile_, profile_.codes4, words, bytes, out);
    if constexpr (form == Form::kChunks8) return decode_chunks_warp(profile_, profile_.codes8, words, bytes, out);
    if constexpr (form == Form::kSparse) return decode_sparse_warp(profile_, words, bytes, out);
    if constexpr (form == Form::kDictionary) return decode_dictionary_warp(profile_, words, bytes, out);
    return false;
  }

 private:
  struct Nothing {
    __device__ explicit Nothing(const ProfileRef&) {}
  };
  static constexpr bool kSingles = form == Form::kSingles || form == Form::kSingles128;
  static constexpr bool kPairs = form == Form::kPairs, kLayers = form == Form::kLayers;
  static constexpr bool kInPlanes = is_plane_a(form) || form == Form::kPlanes;
  static constexpr bool kHasCodes = kSingles || kPairs || kLayers || kInPlanes;
  static_assert((form != Form::kSingles128 && form != Form::kRounded128) || kWords == 4);
  using Singles = SinglesDecoder<kWords, form == Form::kSingles128>;
  static constexpr Mantissas kMantissas = form == Form::kPlanes ? Mantissas::kPlanes : Mantissas::kPlaneA;
  using Planes = SinglesDecoder<kWords, form == Form::kRounded128, kMantissas, is_rounded(form)>;
  using Pairs =
      std::conditional_t<kPairs, PairsDecoder<kWords>, std::conditional_t<kLayers, LayersDecoder<kWords>, Nothing>>;
  const ProfileRef& profile_;
  std::conditional_t<kSingles, Singles, std::conditional_t<kInPlanes, Planes, Pairs>> exponent_;
};

}  // namespace cohort::ibp
