// Which device code a profile needs: a kernel that knows it at compile time is smaller and faster. Internal to ibp/.
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>

#include "ibp/profile_ref.h"

namespace cohort::ibp {

// kSingles: columns of 4 bytes, kPairs: of 2. kSingles128: 128 columns of float32, the commonest row. kRounded: plane A
// as bfloat16; kRounded128: of 128 columns.
enum class Form : uint8_t {
  kRaw,
  kSingles,
  kSingles128,
  kPairs,
  kLayers,
  kChunks4,
  kChunks8,
  kSparse,
  kDictionary,
  kPlaneA,
  kPlanes,
  kRounded,
  kRounded128
};

inline constexpr std::array kDecodeForms = {Form::kRaw,        Form::kSingles, Form::kSingles128, Form::kPairs,
                                            Form::kLayers,     Form::kChunks4, Form::kChunks8,    Form::kSparse,
                                            Form::kDictionary, Form::kPlaneA,  Form::kPlanes,     Form::kRounded,
                                            Form::kRounded128};
inline constexpr std::array kEncodeForms = {Form::kRaw,     Form::kSingles, Form::kPairs,  Form::kLayers,
                                            Form::kChunks4, Form::kChunks8, Form::kSparse, Form::kDictionary};

constexpr bool is_rounded(Form form) { return form == Form::kRounded || form == Form::kRounded128; }
constexpr bool is_plane_a(Form form) { return form == Form::kPlaneA || is_rounded(form); }

// Codec planes: `plane_a` alone, as it is or `rounded` to bfloat16, or both planes.
COHORT_HOST_DEVICE inline Form form_of(const ProfileRef& profile, bool plane_a = false, bool rounded = false) {
  switch (profile.codec) {
    case Codec::kPlanes:
      if (plane_a && rounded) return profile.num_columns == 128 ? Form::kRounded128 : Form::kRounded;
      return plane_a ? Form::kPlaneA : Form::kPlanes;
    case Codec::kExponent:
      if (profile.element_bytes != 4) return Form::kPairs;
      return profile.num_columns == 128 ? Form::kSingles128 : Form::kSingles;
    case Codec::kLayers:
      return Form::kLayers;
    case Codec::kInvariant:
      return profile.chunk_bytes == 4 ? Form::kChunks4 : Form::kChunks8;
    case Codec::kSparse:
      return Form::kSparse;
    case Codec::kDictionary:
      return Form::kDictionary;
    default:
      return Form::kRaw;
  }
}

// The form for encoding; kRaw for codec planes, which the GPU does not encode.
inline Form encode_form_of(const ProfileRef& profile) {
  const Form form = form_of(profile);
  if (form == Form::kSingles128) return Form::kSingles;
  return form == Form::kPlanes ? Form::kRaw : form;
}

// Whether the decoder reads beyond a row even if that is longer than least_coded_bytes() by kReadAheadBytes or more.
COHORT_HOST_DEVICE inline bool reads_ahead(Form form) {
  return form == Form::kPairs || form == Form::kLayers || form == Form::kChunks4 || form == Form::kChunks8 ||
         form == Form::kSparse;
}

// Whether there are decoders of this form whose lanes store `words` (4, 2 or 1) words of 32 bits at once.
constexpr bool stores_words(Form form, uint32_t words) {
  if (form == Form::kSingles128 || form == Form::kRounded128) return words == 4;
  if (form == Form::kSingles || form == Form::kPairs || form == Form::kLayers) return true;
  if (is_plane_a(form) || form == Form::kPlanes) return words != 2;  // rows with pairs of columns are rare
  return words == 1;
}

// Returns f(std::integral_constant<Form, form>{}) for a form of the list.
template <const auto& forms, std::size_t first = 0, typename F>
auto with_form(Form form, F&& f) {
  if constexpr (first + 1 < forms.size()) {
    if (form != forms[first]) return with_form<forms, first + 1>(form, f);
  }
  return f(std::integral_constant<Form, forms[first]>{});
}

}  // namespace cohort::ibp
