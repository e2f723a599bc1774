// Codec "exponent" on one row. FORMAT.md 4.3.
#include "ibp/bits.h"
#include "ibp/row_codec.h"

namespace cohort::ibp {
namespace {

// The widths of a profile's fields, read once a row.
struct Fields {
  explicit Fields(const ProfileRef& profile)
      : mantissa(profile.mantissa_bits),
        code(profile.code_bits),
        exponent(profile.exponent_bits),
        element(profile.coded_element_bits()),
        limit((1u << profile.code_bits) - 1) {}
  uint32_t mantissa, code, exponent, element, limit;
};

// (base - 1) << mantissa_bits of a column, modulo the element's width.
template <typename Element>
Element add_of(const uint32_t* add, uint32_t column) {
  if constexpr (sizeof(Element) == 4) return add[column];
  return static_cast<Element>(add[column / 2] >> (column % 2 * 16));
}

template <typename Element>
uint32_t encode_elements(const ProfileRef& profile, const std::byte* row, std::byte* out) {
  const Fields fields(profile);
  constexpr uint32_t kBits = sizeof(Element) * 8;
  const uint32_t mantissa_mask = (1u << fields.mantissa) - 1;
  const uint32_t exponent_mask = ((1u << fields.exponent) - 1) << fields.mantissa;
  const uint32_t* add = profile.add;  // copies: a write of bytes could change what `profile` refers to
  const uint32_t num_columns = profile.num_columns;
  thread_local std::vector<uint8_t> buffer;
  buffer.resize(num_columns + 1);
  uint8_t* escapes = buffer.data();
  uint32_t num_escapes = 0;
  BitWriter stream(out);
  for (uint32_t column = 0; column < num_columns; ++column) {
    const uint32_t bits = load_as<Element>(row + column * sizeof(Element));
    const uint32_t exponent = bits & exponent_mask;
    const uint32_t above = static_cast<Element>(exponent - add_of<Element>(add, column)) >> fields.mantissa;
    const bool escaped = above - 1 >= fields.limit;
    escapes[num_escapes] = static_cast<uint8_t>(exponent >> fields.mantissa);
    num_escapes += escaped;
    const uint32_t code = escaped ? 0 : above;
    const uint32_t sign = bits >> (kBits - 1);
    stream.put((bits & mantissa_mask) | (code << fields.mantissa) | (sign << (fields.mantissa + fields.code)),
               fields.element);
  }
  stream.align_to_byte();
  for (uint32_t i = 0; i < num_escapes; ++i) stream.put(escapes[i], fields.exponent);
  return stream.finish();
}

template <typename Element>
uint32_t decode_elements(const ProfileRef& profile, const std::byte* in, uint32_t bytes, std::byte* row) {
  const Fields fields(profile);
  constexpr uint32_t kBits = sizeof(Element) * 8;
  if (bytes < profile.escape_offset_bytes()) return 0;
  const uint32_t mantissa_mask = (1u << fields.mantissa) - 1;
  const uint32_t low_mask = (1u << (fields.mantissa + fields.code)) - 1;
  const uint64_t end_bit = uint64_t{bytes} * 8;
  const uint32_t* add = profile.add;
  const uint32_t num_columns = profile.num_columns;
  uint64_t escape_bit = uint64_t{profile.escape_offset_bytes()} * 8;
  uint64_t bit = 0;
  for (uint32_t column = 0; column < num_columns; ++column, bit += fields.element) {
    const uint32_t field = read_bits(in, bit, fields.element);
    const uint32_t sign = (field >> (fields.mantissa + fields.code)) << (kBits - 1);
    uint32_t element = (field & low_mask) + add_of<Element>(add, column);
    if ((field & low_mask) >> fields.mantissa == 0) {
      if (escape_bit + fields.exponent > end_bit) return 0;
      element = (field & mantissa_mask) | (read_bits(in, escape_bit, fields.exponent) << fields.mantissa);
      escape_bit += fields.exponent;
    }
    store_as(row + column * sizeof(Element), static_cast<Element>(element | sign));
  }
  return static_cast<uint32_t>(round_up(escape_bit, 32) / 8);
}

}  // namespace

uint32_t encode_exponent(const ProfileRef& profile, const std::byte* row, std::byte* out) {
  return profile.element_bytes == 4 ? encode_elements<uint32_t>(profile, row, out)
                                    : encode_elements<uint16_t>(profile, row, out);
}

uint32_t decode_exponent(const ProfileRef& profile, const std::byte* in, uint32_t bytes, std::byte* row) {
  return profile.element_bytes == 4 ? decode_elements<uint32_t>(profile, in, bytes, row)
                                    : decode_elements<uint16_t>(profile, in, bytes, row);
}

}  // namespace cohort::ibp
