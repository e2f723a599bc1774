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

// Dropping and restoring invariant bits: by the profile's moves, or by the instructions made for it. put_word() stores
// 8 bytes of the row, two chunks or one, and returns a bit for each that matches.
struct PortableBits {
  template <typename Chunk>
  static uint32_t put_chunk(const ChunkCode<Chunk>& code, Chunk chunk, BitWriter& out) {
    constexpr uint32_t kBits = sizeof(Chunk) * 8;
    const bool match = (chunk & code.mask) == code.value;
    const auto dropped = static_cast<uint32_t>(std::popcount(code.mask));
    out.put(match ? drop_bits(code, chunk) : chunk, match ? kBits - dropped : kBits);
    return match;
  }
  static uint32_t put_word(const ChunkCode<uint32_t>* codes, uint64_t word, BitWriter& out) {
    const uint32_t low = put_chunk(codes[0], static_cast<uint32_t>(word), out);
    return low | (put_chunk(codes[1], static_cast<uint32_t>(word >> 32), out) << 1);
  }
  static uint32_t put_word(const ChunkCode<uint64_t>* codes, uint64_t word, BitWriter& out) {
    return put_chunk(codes[0], word, out);
  }
  template <typename Chunk>
  static Chunk restore(const ChunkCode<Chunk>& code, Chunk kept) {
    return restore_bits(code, kept);
  }
};

#ifdef __x86_64__
#define COHORT_BMI2 __attribute__((target("bmi2,popcnt")))
struct Bmi2Bits {
  COHORT_BMI2 static void put_without(uint64_t dropped, uint64_t word, BitWriter& out) {
    out.put(__builtin_ia32_pext_di(word, ~dropped), 64 - static_cast<uint32_t>(__builtin_popcountll(dropped)));
  }
  COHORT_BMI2 static uint32_t put_word(const ChunkCode<uint32_t>* codes, uint64_t word, BitWriter& out) {
    const bool low = (static_cast<uint32_t>(word) & codes[0].mask) == codes[0].value;
    const bool high = (static_cast<uint32_t>(word >> 32) & codes[1].mask) == codes[1].value;
    const uint32_t low_dropped = -uint32_t{low} & codes[0].mask, high_dropped = -uint32_t{high} & codes[1].mask;
    put_without(low_dropped | (uint64_t{high_dropped} << 32), word, out);
    return low | (uint32_t{high} << 1);
  }
  COHORT_BMI2 static uint32_t put_word(const ChunkCode<uint64_t>* codes, uint64_t word, BitWriter& out) {
    const bool match = (word & codes[0].mask) == codes[0].value;
    put_without(-uint64_t{match} & codes[0].mask, word, out);
    return match;
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
  constexpr uint32_t kWordChunks = 8 / sizeof(Chunk);
  const ChunkCode<Chunk>* codes = codes_of<Chunk>(profile);
  const uint32_t num_chunks = profile.num_chunks;  // copies: a write of bytes could change what `profile` refers to
  const uint32_t whole_chunks = profile.row_bytes / 8 * kWordChunks;
  const uint32_t header_bytes = (num_chunks + 31) / 32 * 4;
  BitWriter payload(out + header_bytes);
  for (uint32_t first = 0; first < num_chunks; first += 32) {
    const uint32_t whole_end = std::min(first + 32, whole_chunks), end = std::min(first + 32, num_chunks);
    uint32_t participation = 0, i = first;
    for (; i < whole_end; i += kWordChunks) {
      const auto word = load_as<uint64_t>(row + i * sizeof(Chunk));
      participation |= Bits::put_word(codes + i, word, payload) << (i - first);
    }
    for (; i < end; ++i) {
      const Chunk chunk = load_chunk<Chunk>(profile, row, i);
      participation |= PortableBits::put_chunk(codes[i], chunk, payload) << (i - first);
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
const bool kHasBmi2 = __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
#endif

}  // namespace

uint32_t encode_invariant_portable(const ProfileRef& profile, const std::byte* row, std::byte* out) {
  return encode_with<PortableBits>(profile, row, out);
}

uint32_t decode_invariant_portable(const ProfileRef& profile, const std::byte* in, uint32_t bytes, std::byte* row) {
  return decode_with<PortableBits>(profile, in, bytes, row);
}

uint32_t encode_invariant(const ProfileRef& profile, const std::byte* row, std::byte* out) {
#ifdef __x86_64__
  if (kHasBmi2) return encode_bmi2(profile, row, out);
#endif
  return encode_invariant_portable(profile, row, out);
}

uint32_t decode_invariant(const ProfileRef& profile, const std::byte* in, uint32_t bytes, std::byte* row) {
#ifdef __x86_64__
  if (kHasBmi2) return decode_bmi2(profile, in, bytes, row);
#endif
  return decode_invariant_portable(profile, in, bytes, row);
}

}  // namespace cohort::ibp
