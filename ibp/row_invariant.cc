// Codec "invariant" on one row. FORMAT.md 4.2.
#include "ibp/bits.h"
#include "ibp/row_codec.h"

namespace cohort::ibp {
namespace {

template <typename Chunk>
const ChunkCode<Chunk>* codes_of(const ProfileRef& profile) {
  if constexpr (sizeof(Chunk) == 4) return profile.codes4;
  if constexpr (sizeof(Chunk) == 8) return profile.codes8;
}

// Moving kept bits together and apart: by the profile's moves, or by the instructions made for it.
struct PortableBits {
  template <typename Chunk>
  static Chunk drop(const ChunkCode<Chunk>& code, Chunk chunk) {
    return drop_bits(code, chunk);
  }
  template <typename Chunk>
  static Chunk restore(const ChunkCode<Chunk>& code, Chunk kept) {
    return restore_bits(code, kept);
  }
};

#ifdef __x86_64__
#define COHORT_BMI2 __attribute__((target("bmi2")))
struct Bmi2Bits {
  COHORT_BMI2 static uint32_t drop(const ChunkCode<uint32_t>& code, uint32_t chunk) {
    return __builtin_ia32_pext_si(chunk, ~code.mask);
  }
  COHORT_BMI2 static uint64_t drop(const ChunkCode<uint64_t>& code, uint64_t chunk) {
    return __builtin_ia32_pext_di(chunk, ~code.mask);
  }
  COHORT_BMI2 static uint32_t restore(const ChunkCode<uint32_t>& code, uint32_t kept) {
    return __builtin_ia32_pdep_si(kept, ~code.mask) | code.value;
  }
  COHORT_BMI2 static uint64_t restore(const ChunkCode<uint64_t>& code, uint64_t kept) {
    return __builtin_ia32_pdep_di(kept, ~code.mask) | code.value;
  }
};
#endif

// Chunk i of the row; the last one may be short and is filled with zeros.
template <typename Chunk>
Chunk load_chunk(const ProfileRef& profile, const std::byte* row, uint32_t i) {
  const uint32_t offset = i * uint32_t{sizeof(Chunk)};
  if (offset + sizeof(Chunk) <= profile.row_bytes) return load_as<Chunk>(row + offset);
  Chunk chunk = 0;
  std::memcpy(&chunk, row + offset, profile.row_bytes - offset);
  return chunk;
}

template <typename Bits, typename Chunk>
uint32_t encode_chunks(const ProfileRef& profile, const std::byte* row, std::byte* out) {
  constexpr uint32_t kBits = sizeof(Chunk) * 8;
  const ChunkCode<Chunk>* codes = codes_of<Chunk>(profile);
  const uint32_t header_bytes = (profile.num_chunks + 31) / 32 * 4;
  const uint8_t* widths = profile.widths;  // a copy: a write of bytes could change what `profile` refers to
  BitWriter payload(out + header_bytes);
  for (uint32_t first = 0; first < profile.num_chunks; first += 32) {
    const uint32_t last = std::min(first + 32, profile.num_chunks);
    uint32_t participation = 0;
    for (uint32_t i = first; i < last; ++i) {
      const Chunk chunk = load_chunk<Chunk>(profile, row, i);
      const bool match = (chunk & codes[i].mask) == codes[i].value;
      participation |= uint32_t{match} << (i - first);
      const Chunk kept = Bits::drop(codes[i], chunk);
      payload.put_wide(match ? kept : chunk, match ? widths[i] : kBits);
    }
    store_as(out + first / 8, participation);
  }
  return header_bytes + payload.finish();
}

template <typename Bits, typename Chunk>
uint32_t decode_chunks(const ProfileRef& profile, const std::byte* in, uint32_t bytes, std::byte* row) {
  constexpr uint32_t kBits = sizeof(Chunk) * 8;
  const ChunkCode<Chunk>* codes = codes_of<Chunk>(profile);
  const uint32_t header_bytes = (profile.num_chunks + 31) / 32 * 4;
  if (bytes < header_bytes) return 0;
  const uint64_t end_bit = uint64_t{bytes} * 8;
  uint64_t bit = uint64_t{header_bytes} * 8;
  for (uint32_t i = 0; i < profile.num_chunks; ++i) {
    const bool match = (load_as<uint32_t>(in + i / 32 * 4) >> (i % 32)) & 1;
    const uint32_t width = match ? profile.widths[i] : kBits;
    if (bit + width > end_bit) return 0;
    const auto stored = static_cast<Chunk>(read_bits_wide(in, bit, width));
    const Chunk restored = Bits::restore(codes[i], stored);
    const Chunk chunk = match ? restored : stored;
    bit += width;
    const uint32_t offset = i * uint32_t{sizeof(Chunk)};
    if (offset + sizeof(Chunk) <= profile.row_bytes) {
      store_as(row + offset, chunk);
    } else {
      std::memcpy(row + offset, &chunk, profile.row_bytes - offset);
    }
  }
  return static_cast<uint32_t>(round_up(bit, 32) / 8);
}

template <typename Bits>
uint32_t encode_with(const ProfileRef& profile, const std::byte* row, std::byte* out) {
  return profile.chunk_bytes == 4 ? encode_chunks<Bits, uint32_t>(profile, row, out)
                                  : encode_chunks<Bits, uint64_t>(profile, row, out);
}

template <typename Bits>
uint32_t decode_with(const ProfileRef& profile, const std::byte* in, uint32_t bytes, std::byte* row) {
  return profile.chunk_bytes == 4 ? decode_chunks<Bits, uint32_t>(profile, in, bytes, row)
                                  : decode_chunks<Bits, uint64_t>(profile, in, bytes, row);
}

#ifdef __x86_64__
// "flatten" brings the whole loop into a function whose target has the instructions.
COHORT_BMI2 __attribute__((flatten)) uint32_t encode_bmi2(const ProfileRef& profile, const std::byte* row,
                                                          std::byte* out) {
  return encode_with<Bmi2Bits>(profile, row, out);
}
COHORT_BMI2 __attribute__((flatten)) uint32_t decode_bmi2(const ProfileRef& profile, const std::byte* in,
                                                          uint32_t bytes, std::byte* row) {
  return decode_with<Bmi2Bits>(profile, in, bytes, row);
}
const bool kHasBmi2 = __builtin_cpu_supports("bmi2");
#endif

}  // namespace

uint32_t encode_invariant(const ProfileRef& profile, const std::byte* row, std::byte* out) {
#ifdef __x86_64__
  if (kHasBmi2) return encode_bmi2(profile, row, out);
#endif
  return encode_with<PortableBits>(profile, row, out);
}

uint32_t decode_invariant(const ProfileRef& profile, const std::byte* in, uint32_t bytes, std::byte* row) {
#ifdef __x86_64__
  if (kHasBmi2) return decode_bmi2(profile, in, bytes, row);
#endif
  return decode_with<PortableBits>(profile, in, bytes, row);
}

}  // namespace cohort::ibp
