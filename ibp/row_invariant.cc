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

// Chunk i of the row; the last one may be short and is filled with zeros.
template <typename Chunk>
Chunk load_chunk(const ProfileRef& profile, const std::byte* row, uint32_t i) {
  const uint32_t offset = i * uint32_t{sizeof(Chunk)};
  if (offset + sizeof(Chunk) <= profile.row_bytes) return load_as<Chunk>(row + offset);
  Chunk chunk = 0;
  std::memcpy(&chunk, row + offset, profile.row_bytes - offset);
  return chunk;
}

template <typename Chunk>
uint32_t encode_chunks(const ProfileRef& profile, const std::byte* row, std::byte* out) {
  constexpr uint32_t kBits = sizeof(Chunk) * 8;
  const ChunkCode<Chunk>* codes = codes_of<Chunk>(profile);
  const uint32_t header_bytes = (profile.num_chunks + 31) / 32 * 4;
  BitWriter payload(out + header_bytes);
  for (uint32_t first = 0; first < profile.num_chunks; first += 32) {
    const uint32_t last = std::min(first + 32, profile.num_chunks);
    uint32_t participation = 0;
    for (uint32_t i = first; i < last; ++i) {
      const Chunk chunk = load_chunk<Chunk>(profile, row, i);
      const bool match = (chunk & codes[i].mask) == codes[i].value;
      participation |= uint32_t{match} << (i - first);
      if (match) {
        const auto width = kBits - static_cast<uint32_t>(std::popcount(codes[i].mask));
        if (width) payload.put_wide(drop_bits(codes[i], chunk), width);
      } else {
        payload.put_wide(chunk, kBits);
      }
    }
    store_as(out + first / 8, participation);
  }
  return header_bytes + payload.finish();
}

template <typename Chunk>
uint32_t decode_chunks(const ProfileRef& profile, const std::byte* in, uint32_t bytes, std::byte* row) {
  constexpr uint32_t kBits = sizeof(Chunk) * 8;
  const ChunkCode<Chunk>* codes = codes_of<Chunk>(profile);
  const uint32_t header_bytes = (profile.num_chunks + 31) / 32 * 4;
  if (bytes < header_bytes) return 0;
  const uint64_t end_bit = uint64_t{bytes} * 8;
  uint64_t bit = uint64_t{header_bytes} * 8;
  for (uint32_t i = 0; i < profile.num_chunks; ++i) {
    const bool match = (load_as<uint32_t>(in + i / 32 * 4) >> (i % 32)) & 1;
    const uint32_t width = match ? kBits - static_cast<uint32_t>(std::popcount(codes[i].mask)) : kBits;
    if (bit + width > end_bit) return 0;
    auto chunk = static_cast<Chunk>(width ? read_bits_wide(in, bit, width) : 0);
    if (match) chunk = restore_bits(codes[i], chunk);
    bit += width;
    const uint32_t offset = i * uint32_t{sizeof(Chunk)};
    std::memcpy(row + offset, &chunk, std::min<std::size_t>(sizeof(Chunk), profile.row_bytes - offset));
  }
  return static_cast<uint32_t>(round_up(bit, 32) / 8);
}

}  // namespace

uint32_t encode_invariant(const ProfileRef& profile, const std::byte* row, std::byte* out) {
  return profile.chunk_bytes == 4 ? encode_chunks<uint32_t>(profile, row, out)
                                  : encode_chunks<uint64_t>(profile, row, out);
}

uint32_t decode_invariant(const ProfileRef& profile, const std::byte* in, uint32_t bytes, std::byte* row) {
  return profile.chunk_bytes == 4 ? decode_chunks<uint32_t>(profile, in, bytes, row)
                                  : decode_chunks<uint64_t>(profile, in, bytes, row);
}

}  // namespace cohort::ibp
