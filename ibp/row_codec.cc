#include "ibp/row_codec.h"

#include <string>

#include "base/check.h"
#include "ibp/bits.h"
#include "ibp/codecs.h"

namespace cohort::ibp {
namespace {

// The moves of a parallel-suffix compress (in the manner of Hacker's Delight 7-4): in step i a kept bit moves right by
// 2^i when bit i of the number of dropped bits below it is set.
template <typename Chunk>
ChunkCode<Chunk> make_chunk_code(Chunk mask, Chunk value) {
  ChunkCode<Chunk> code;
  code.mask = mask;
  code.value = value;
  constexpr int kBits = sizeof(Chunk) * 8;
  Chunk kept = ~mask;         // where kept bits are now
  Chunk dropped = mask << 1;  // dropped bits, one place above: in step i each 2^i-th of them
  for (int step = 0; step < ChunkCode<Chunk>::kSteps; ++step) {
    Chunk odd = dropped;  // where an odd number of them is below
    for (int by = 1; by < kBits; by *= 2) odd ^= odd << by;
    const Chunk moving = kept & odd;
    code.move[step] = moving;
    kept = (kept ^ moving) | (moving >> (1 << step));
    dropped &= ~odd;
  }
  return code;
}

}  // namespace

ProfileTables::ProfileTables(const Profile& profile) {
  const uint32_t size = element_bytes(profile.dtype);
  ref_ = {.codec = profile.codec, .dtype = profile.dtype, .element_bytes = size, .num_columns = profile.num_columns};
  ref_.row_bytes = profile.row_bytes();
  ref_.most_coded_bytes = profile.longest_bytes ? profile.longest_bytes : ref_.row_bytes - 1;
  ref_.chunk_bytes = profile.chunk_bytes;
  ref_.num_chunks = profile.num_chunks();
  for (uint32_t i = 0; i < ref_.num_chunks; ++i) {
    if (profile.chunk_bytes == 4) {
      codes4_.push_back(
          make_chunk_code(static_cast<uint32_t>(profile.mask[i]), static_cast<uint32_t>(profile.value[i])));
    } else {
      codes8_.push_back(make_chunk_code(profile.mask[i], profile.value[i]));
    }
  }
  for (const uint64_t mask : profile.mask) {
    widths_.push_back(static_cast<uint8_t>(profile.chunk_bytes * 8 - static_cast<uint32_t>(std::popcount(mask))));
  }
  ref_.widths = widths_.data();
  ref_.codes4 = codes4_.data();
  ref_.codes8 = codes8_.data();
  if (has_codes(profile.codec)) {
    const uint32_t mantissa_bits = size * 8 - 1 - exponent_bits(profile.dtype);
    ref_.code_bits = profile.code_bits;
    ref_.exponent_bits = exponent_bits(profile.dtype);
    ref_.mantissa_bits = profile.codec == Codec::kPlanes ? profile.mantissa_bits : mantissa_bits;
    ref_.rest_bits = mantissa_bits - ref_.mantissa_bits;
    add_.assign((ref_.row_bytes + 15) / 16 * 4, 0);  // whole groups of 16 bytes, for wide loads
    for (uint32_t column = 0; column < profile.num_columns; ++column) {
      const uint32_t shift = (column * size % 4) * 8;
      const uint32_t below = (uint32_t{profile.base[column]} - 1) << mantissa_bits;
      add_[column * size / 4] |= (size == 4 ? below : below & 0xffffu) << shift;
    }
    ref_.add = add_.data();
    if (profile.codec == Codec::kPlanes) ref_.slot_bytes = profile.slot_bytes;
  }
  if (profile.codec == Codec::kLayers) {
    for (uint32_t i = 0; i < profile.steps.size(); ++i) {
      const uint32_t code = i < kSecondSteps ? i + 1 : i - kSecondSteps + 1;
      uint64_t step = uint64_t{profile.steps[i]} << 8 * code;
      i < kSecondSteps ? ref_.second |= static_cast<uint32_t>(step) : ref_.third |= step;
      codes_of_steps_[profile.steps[i]] = static_cast<uint8_t>(i < kSecondSteps ? code : code << kSecondBits);
    }
    ref_.codes_of_steps = codes_of_steps_.data();
  }
  if (profile.codec == Codec::kDictionary) {
    ref_.code_bits = profile.code_bits;
    elements_ = profile.elements;
    ref_.elements = elements_.data();
  }
  if (profile.codec == Codec::kSparse) {
    ref_.index_bits = std::max(1, static_cast<int>(std::bit_width(profile.num_columns - 1)));
    ref_.value_bits = profile.value_bits;
    ref_.constant = profile.constant;
    ref_.value_prefix = profile.value_prefix;
  }
}

uint32_t encode_row(const ProfileRef& profile, const std::byte* row, std::byte* out) {
  const uint32_t bytes = with_codec(profile.codec, [&](auto traits) { return traits.encode(profile, row, out); });
  return bytes <= profile.most_coded_bytes ? bytes : 0;
}

void encode_each(const ProfileRef& profile, const RowTable& rows,
                 const std::function<void(int64_t, uint32_t, const std::byte*)>& visit) {
#pragma omp parallel if (worth_threads(rows.num_rows * int64_t{rows.row_bytes()}))
  {
    std::vector<std::byte> scratch(encode_room(profile));
#pragma omp for schedule(dynamic, 256)
    for (int64_t row = 0; row < rows.num_rows; ++row) {
      visit(row, encode_row(profile, rows.row(row), scratch.data()), scratch.data());
    }
  }
}

uint32_t coded_bytes(const ProfileRef& profile, const RowSpan& span, std::byte* row, std::vector<std::byte>& scratch) {
  const uint32_t plane_b_bytes = span.plane_b ? profile.plane_b_bytes() : 0;
  const std::size_t room = span.bytes + std::size_t{plane_b_bytes} + 2 * kReadSlackBytes;
  if (scratch.size() < room) scratch.resize(room);
  std::memcpy(scratch.data(), span.begin, span.bytes);
  std::memset(scratch.data() + span.bytes, 0, kReadSlackBytes);
  std::byte* plane_b = span.plane_b ? scratch.data() + span.bytes + kReadSlackBytes : nullptr;
  if (plane_b) std::memcpy(plane_b, span.plane_b, plane_b_bytes);
  const CodedRow coded{scratch.data(), span.bytes, plane_b};
  const uint32_t used = with_codec(profile.codec, [&](auto traits) { return traits.decode(profile, coded, row); });
  return (span.exact ? used == span.bytes : used <= span.bytes) ? used : 0;
}

bool decode_row(const ProfileRef& profile, const RowSpan& span, std::byte* row, std::vector<std::byte>& scratch) {
  if (!span.raw) return coded_bytes(profile, span, row, scratch) > 0;
  if (span.bytes < profile.row_bytes) return false;
  std::memcpy(row, span.begin, profile.row_bytes);
  return true;
}

void demand_multiple(const std::string& place, const void* address, std::size_t bytes) {
  const std::size_t beyond = reinterpret_cast<uintptr_t>(address) % bytes;
  if (beyond == 0) return;
  throw base::Error({place, "an address that is a multiple of " + std::to_string(bytes),
                     "an address " + std::to_string(beyond) + " bytes beyond a multiple", "copy it to aligned memory"});
}

void fail_row(int64_t row) {
  throw base::Error({"row " + std::to_string(row), "a valid encoding", "bytes that are not an encoded row",
                     "the data is damaged, or belongs to another profile"});
}

}  // namespace cohort::ibp
