// The fields of codecs "exponent", "planes" and "layers", for the encoders of the host and of the GPU. FORMAT.md 4.3.
#pragma once

#include "ibp/profile_ref.h"

namespace cohort::ibp {

// The widths of a profile's fields, read once a row.
struct ExponentFields {
  COHORT_HOST_DEVICE explicit ExponentFields(const ProfileRef& profile)
      : mantissa(profile.mantissa_bits),
        code(profile.code_bits),
        exponent(profile.exponent_bits),
        rest(profile.rest_bits),
        element(profile.coded_element_bits()),
        limit((1u << profile.code_bits) - 1) {}
  uint32_t mantissa, code, exponent, rest, element, limit;
};

template <typename Element>
struct ExponentField {
  Element bits;
  bool escaped;  // its code is 0: the exponent is stored by itself
};

// The field of an element; `add`: ProfileRef::add of its column.
template <typename Element>
COHORT_HOST_DEVICE inline ExponentField<Element> field_of(const ExponentFields& fields, Element element, Element add) {
  constexpr uint32_t kBits = sizeof(Element) * 8;
  const auto mantissa_mask = static_cast<Element>((1u << fields.mantissa) - 1);
  const auto exponent_mask = static_cast<Element>(((1u << fields.exponent) - 1) << (fields.mantissa + fields.rest));
  const auto distance = static_cast<Element>((element & exponent_mask) - add);
  const auto above = static_cast<Element>(distance >> (fields.mantissa + fields.rest));
  const bool escaped = static_cast<Element>(above - 1) >= static_cast<Element>(fields.limit);
  const Element code = escaped ? 0 : above;
  const auto sign =
      static_cast<Element>(static_cast<Element>(element >> (kBits - 1)) << (fields.mantissa + fields.code));
  const auto kept = static_cast<Element>(static_cast<Element>(element >> fields.rest) & mantissa_mask);
  return {static_cast<Element>(kept | static_cast<Element>(code << fields.mantissa) | sign), escaped};
}

template <typename Element>
COHORT_HOST_DEVICE inline uint32_t exponent_of(const ExponentFields& fields, Element element) {
  return static_cast<uint32_t>(static_cast<Element>(element << 1) >> (fields.mantissa + fields.rest + 1));
}

// Codec layers: how far the exponent of an element lies above the one below its column's base, modulo their number.
template <typename Element>
COHORT_HOST_DEVICE inline uint32_t step_of(const ExponentFields& fields, Element element, Element add) {
  return (exponent_of(fields, element) - (add >> fields.mantissa)) & ((1u << fields.exponent) - 1);
}

// One word of a stream of fields of `width` bits, 17 to 31: which fields are in it, and where.
struct WordOfFields {
  COHORT_HOST_DEVICE WordOfFields(uint32_t word, uint32_t width)
      : field(word * 32 / width), shift(word * 32 - field * width), second(width - shift), third(second + width) {}
  // From the fields `field`, `field` + 1 and `field` + 2.
  COHORT_HOST_DEVICE uint32_t join(uint32_t a, uint32_t b, uint32_t c) const {
    return (a >> shift) | (b << second) | (third < 32 ? c << third : 0);
  }
  uint32_t field;
  uint32_t shift;          // bits of the first field that the word before has
  uint32_t second, third;  // where the next fields begin
};

}  // namespace cohort::ibp
