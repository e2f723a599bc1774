// Codecs "exponent", "planes" and "layers" on one row. FORMAT.md 4.3, 4.5 and 4.6. Plane A is a row of codec exponent
// whose mantissas lack their low bits.
#include <array>
#include <span>

#include "ibp/bits.h"
#include "ibp/exponent_fields.h"
#include "ibp/row_codec.h"

namespace cohort::ibp {
namespace {

// Columns coded at a time: first all fields, in a loop without branches that compilers turn into vector code.
constexpr uint32_t kBlock = 64;

template <typename Element>
struct Block {
  Element fields[kBlock] = {};
  uint8_t escaped[kBlock] = {};  // 1 where the code is 0
};

template <typename Element>
void code_block(const ExponentFields& fields, const std::byte* row, const std::byte* add, uint32_t count,
                Block<Element>& block) {
  const ExponentFields widths = fields;  // a copy, which no write can change
  for (uint32_t i = 0; i < count; ++i) {
    const auto field =
        field_of(widths, load_as<Element>(row + i * sizeof(Element)), load_as<Element>(add + i * sizeof(Element)));
    block.fields[i] = field.bits;
    block.escaped[i] = field.escaped;
  }
}

// Appends `count` fields of `width` bits, a word of 8 bytes at a time.
template <typename Element>
void put_block(const Block<Element>& block, uint32_t width, uint32_t count, BitWriter& stream) {
  constexpr uint32_t kPerWord = 8 / sizeof(Element);
  const auto* bytes = reinterpret_cast<const std::byte*>(block.fields);
  uint32_t i = 0;
  for (; i + kPerWord <= count; i += kPerWord) {
    auto word = load_as<uint64_t>(bytes + i * sizeof(Element));
    if constexpr (sizeof(Element) == 2) {
      word = (word & 0x0000ffff0000ffffu) | ((word >> 16 & 0x0000ffff0000ffffu) << width);
    }
    constexpr uint32_t kHalf = kPerWord / 2;
    stream.put((word & 0xffffffffu) | ((word >> 32) << (kHalf * width)), kPerWord * width);
  }
  for (; i < count; ++i) stream.put(block.fields[i], width);
}

// Bit i: whether column i of the block is escaped.
inline uint64_t escaped_columns(const uint8_t* escaped) {
  uint64_t columns = 0;
  for (uint32_t i = 0; i < kBlock; i += 8) {
    uint64_t flags;
    std::memcpy(&flags, escaped + i, 8);
    columns |= (flags * 0x0102040810204080u >> 56) << i;  // eight flags of a byte each to eight bits
  }
  return columns;
}

constexpr uint32_t kMostGroups = kMaxRowBytes / 2 / kLayerColumns;

// Codec layers: the second and third layer and the steps that are in neither. `steps`: of each column without a code in
// the first layer; ends[i]: where those of group i end. Changes `steps`.
void put_layers(const ProfileRef& profile, uint8_t* steps, std::span<const uint32_t> ends, BitWriter& stream) {
  const auto keep_left = [](uint8_t* values, uint32_t count, auto is_left) {
    uint32_t left = 0;
    for (uint32_t i = 0; i < count; ++i) {
      values[left] = values[i];
      left += is_left(values[i]);
    }
    return left;
  };
  const uint8_t* codes = profile.codes_of_steps;
  constexpr uint32_t kSecondMask = (1u << kSecondBits) - 1;
  for (uint32_t begin = 0; const uint32_t end : ends) {
    uint8_t* left = steps + begin;
    uint32_t count = end - begin;
    for (uint32_t i = 0; i < count; ++i) stream.put(codes[left[i]] & kSecondMask, kSecondBits);
    count = keep_left(left, count, [codes](uint8_t step) { return (codes[step] & kSecondMask) == 0; });
    for (uint32_t i = 0; i < count; ++i) stream.put(codes[left[i]] >> kSecondBits, kThirdBits);
    count = keep_left(left, count, [codes](uint8_t step) { return codes[step] == 0; });
    for (uint32_t i = 0; i < count; ++i) stream.put(left[i], profile.exponent_bits);
    begin = end;
  }
}

template <typename Element, bool kLayers = false>
uint32_t encode_elements(const ProfileRef& profile, const std::byte* row, std::byte* out) {
  const ExponentFields fields(profile);
  const auto* add = reinterpret_cast<const std::byte*>(profile.add);
  const uint32_t num_columns = profile.num_columns;  // a copy: a write of bytes could change what `profile` refers to
  thread_local std::vector<uint8_t> buffer;
  buffer.resize(num_columns);
  uint8_t* escapes = buffer.data();  // exponents; layers: steps
  uint32_t num_escapes = 0;
  std::array<uint32_t, kMostGroups> ends;
  BitWriter stream(out);
  Block<Element> block;
  for (uint32_t first = 0; first < num_columns; first += kBlock) {
    const uint32_t count = std::min(kBlock, num_columns - first);
    const std::byte* from = row + first * sizeof(Element);
    code_block(fields, from, add + first * sizeof(Element), count, block);
    put_block(block, fields.element, count, stream);
    for (uint64_t left = escaped_columns(block.escaped) & low_bits(count); left; left &= left - 1) {
      const std::size_t at = static_cast<uint32_t>(std::countr_zero(left)) * sizeof(Element);
      const auto bits = load_as<Element>(from + at);
      const uint32_t escape = kLayers ? step_of(fields, bits, load_as<Element>(add + first * sizeof(Element) + at))
                                      : exponent_of(fields, bits);
      escapes[num_escapes++] = static_cast<uint8_t>(escape);
    }
    if constexpr (kLayers) ends[first / kLayerColumns] = num_escapes;
  }
  stream.align_to_byte();
  if constexpr (kLayers) {
    put_layers(profile, escapes, std::span(ends).first((num_columns + kLayerColumns - 1) / kLayerColumns), stream);
    return stream.finish();
  }
  for (uint32_t i = 0; i < num_escapes; ++i) stream.put(escapes[i], fields.exponent);
  return stream.finish();
}

template <typename Element>
uint32_t decode_elements(const ProfileRef& profile, const std::byte* in, uint32_t bytes, std::byte* row) {
  const ExponentFields fields(profile);
  constexpr uint32_t kBits = sizeof(Element) * 8;
  if (bytes < profile.escape_offset_bytes()) return 0;
  const uint32_t mantissa_mask = (1u << fields.mantissa) - 1;
  const uint32_t low_mask = (1u << (fields.mantissa + fields.code)) - 1;
  const uint64_t end_bit = uint64_t{bytes} * 8;
  const auto* add = reinterpret_cast<const std::byte*>(profile.add);
  const uint32_t num_columns = profile.num_columns;
  uint64_t escape_bit = uint64_t{profile.escape_offset_bytes()} * 8;
  uint64_t bit = 0;
  for (uint32_t column = 0; column < num_columns; ++column, bit += fields.element) {
    const uint32_t field = read_bits(in, bit, fields.element);
    const uint32_t sign = (field >> (fields.mantissa + fields.code)) << (kBits - 1);
    uint32_t element = (field & low_mask) + load_as<Element>(add + column * sizeof(Element));
    if ((field & low_mask) >> fields.mantissa == 0) {
      if (escape_bit + fields.exponent > end_bit) return 0;
      element = (field & mantissa_mask) | (read_bits(in, escape_bit, fields.exponent) << fields.mantissa);
      escape_bit += fields.exponent;
    }
    store_as(row + column * sizeof(Element), static_cast<Element>(element | sign));
  }
  return static_cast<uint32_t>(round_up(escape_bit, 32) / 8);
}

constexpr uint32_t kMantissaBits = 23;  // of float32, the dtype of codec planes

}  // namespace

uint32_t encode_plane_a(const ProfileRef& profile, const std::byte* row, std::byte* out) {
  bool exact = false;
  for (uint32_t column = 0; column < profile.num_columns; ++column) {
    const uint32_t size = load_as<uint32_t>(row + column * 4) & 0x7fffffffu;
    exact |= size >> kMantissaBits == 0xff || (size != 0 && size >> kMantissaBits == 0);
  }
  return exact ? 0 : encode_elements<uint32_t>(profile, row, out);
}

void encode_plane_b(const ProfileRef& profile, const std::byte* row, std::byte* out) {
  const uint64_t rest_mask = low_bits(profile.rest_bits);
  BitWriter stream(out);
  for (uint32_t column = 0; column < profile.num_columns; ++column) {
    stream.put(load_as<uint32_t>(row + column * 4) & rest_mask, profile.rest_bits);
  }
  const uint32_t bytes = stream.finish();
  std::memset(out + bytes, 0, profile.plane_b_bytes() - bytes);
}

uint32_t decode_planes(const ProfileRef& profile, const std::byte* in, uint32_t bytes, const std::byte* plane_b,
                       std::byte* row) {
  const ExponentFields fields(profile);
  if (bytes < profile.escape_offset_bytes()) return 0;
  const uint32_t mantissa_mask = (1u << fields.mantissa) - 1, middle = profile.middle();
  const uint32_t low_mask = (1u << (fields.mantissa + fields.code)) - 1;
  uint64_t escape_bit = uint64_t{profile.escape_offset_bytes()} * 8;
  for (uint32_t column = 0; column < profile.num_columns; ++column) {
    const uint32_t field = read_bits(in, uint64_t{column} * fields.element, fields.element);
    uint32_t element = ((field & low_mask) << fields.rest) + profile.add[column];
    if ((field & low_mask) >> fields.mantissa == 0) {
      if (escape_bit + fields.exponent > uint64_t{bytes} * 8) return 0;
      const uint32_t exponent = read_bits(in, escape_bit, fields.exponent) << kMantissaBits;
      element = ((field & mantissa_mask) << fields.rest) | exponent;
      escape_bit += fields.exponent;
    }
    if (plane_b) {
      element |= read_bits(plane_b, uint64_t{column} * fields.rest, fields.rest);
    } else if (element >> kMantissaBits != 0) {
      element += middle;
    }
    store_as(row + column * 4, element | (field >> (fields.mantissa + fields.code)) << 31);
  }
  return static_cast<uint32_t>(round_up(escape_bit, 32) / 8);
}

uint32_t encode_layers(const ProfileRef& profile, const std::byte* row, std::byte* out) {
  return encode_elements<uint16_t, true>(profile, row, out);
}

uint32_t decode_layers(const ProfileRef& profile, const std::byte* in, uint32_t bytes, std::byte* row) {
  const ExponentFields fields(profile);
  const uint32_t sign_at = fields.mantissa + kFirstBits, exponent_mask = (1u << fields.exponent) - 1;
  const uint64_t end_bit = uint64_t{bytes} * 8;
  uint64_t bit = uint64_t{profile.escape_offset_bytes()} * 8;  // of what follows the fields
  if (bit > end_bit) return 0;
  std::array<uint32_t, kLayerColumns> left;  // the columns of a group whose steps are not known yet
  for (uint32_t first = 0; first < profile.num_columns; first += kLayerColumns) {
    const uint32_t columns = std::min(kLayerColumns, profile.num_columns - first);
    const auto put = [&](uint32_t column, uint32_t step) {
      const uint32_t field = read_bits(in, uint64_t{column} * fields.element, fields.element);
      const auto* add = reinterpret_cast<const std::byte*>(profile.add) + column * 2;
      const uint32_t exponent = (step + (load_as<uint16_t>(add) >> fields.mantissa)) & exponent_mask;
      const uint32_t size = (exponent << fields.mantissa) | (field & ((1u << fields.mantissa) - 1));
      store_as(row + column * 2, static_cast<uint16_t>(size | (field >> sign_at) << 15));
    };
    // Reads a code for each column that is left; those with code 0 stay.
    const auto read_layer = [&](uint32_t count, uint32_t code_bits, auto step_of_code) {
      uint32_t still = 0;
      for (uint32_t i = 0; i < count; ++i, bit += code_bits) {
        const uint32_t code = read_bits(in, bit, code_bits);
        if (code == 0) {
          left[still++] = left[i];
        } else {
          put(left[i], step_of_code(code));
        }
      }
      return still;
    };
    uint32_t count = 0;
    for (uint32_t column = first; column < first + columns; ++column) {
      const uint32_t code = read_bits(in, uint64_t{column} * fields.element + fields.mantissa, kFirstBits);
      code == 0 ? void(left[count++] = column) : put(column, code);
    }
    if (bit + count * kSecondBits > end_bit) return 0;
    count = read_layer(count, kSecondBits, [&](uint32_t code) { return profile.second >> 8 * code & 0xff; });
    if (bit + count * kThirdBits > end_bit) return 0;
    count = read_layer(count, kThirdBits,
                       [&](uint32_t code) { return static_cast<uint32_t>(profile.third >> 8 * code & 0xff); });
    if (bit + count * fields.exponent > end_bit) return 0;
    for (uint32_t i = 0; i < count; ++i, bit += fields.exponent) put(left[i], read_bits(in, bit, fields.exponent));
  }
  return static_cast<uint32_t>(round_up(bit, 32) / 8);
}

uint32_t encode_exponent(const ProfileRef& profile, const std::byte* row, std::byte* out) {
  return profile.element_bytes == 4 ? encode_elements<uint32_t>(profile, row, out)
                                    : encode_elements<uint16_t>(profile, row, out);
}

uint32_t decode_exponent(const ProfileRef& profile, const std::byte* in, uint32_t bytes, std::byte* row) {
  return profile.element_bytes == 4 ? decode_elements<uint32_t>(profile, in, bytes, row)
                                    : decode_elements<uint16_t>(profile, in, bytes, row);
}

}  // namespace cohort::ibp
