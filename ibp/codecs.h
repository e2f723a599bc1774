// The list of codecs. CodecTraits has what the host code asks of each codec, and with_codec() is the only place that
// tells codecs apart by their number; forms.h has the same for GPUs. docs/develop/add-a-codec.md: how to add one.
// Internal to ibp/.
#pragma once

#include <algorithm>
#include <array>
#include <string>

#include "ibp/fit.h"
#include "ibp/ibp.h"
#include "ibp/row_codec.h"

namespace cohort::ibp {

// A coded row, readable up to kReadSlackBytes beyond `bytes`.
struct CodedRow {
  const std::byte* begin;
  uint32_t bytes;
  const std::byte* plane_b;  // codec planes: null if plane A alone is decoded
};

// What most codecs have in common.
struct CodecDefaults {
  static constexpr uint32_t kVersion = 1;     // of profiles and files: FORMAT.md 7
  static constexpr bool kIsAutomatic = true;  // whether fit() with codec auto tries it
  static constexpr bool kNeedsGain = false;   // auto takes it only if it is better than the codec before it in kCodecs
  static constexpr const char* kRows = "any rows";  // that it can encode
  // Fields of Profile that it uses; a profile of another codec has 0 there.
  static constexpr bool kHasChunks = false, kHasCodeBits = false, kHasLongest = false, kHasMantissaBits = false;
  // Why it cannot encode these rows; empty if it can.
  static std::string unfit(const RowTable&) { return {}; }
  // Throws Error unless the fields of the profile that the codec uses are right.
  static void validate(const Profile&) {}
  // Calls visit(table, length) for each table of the profile, in the order of FORMAT.md 5.
  template <typename P, typename Visit>
  static void visit_tables(P&, Visit&&) {}
};

// Besides CodecDefaults: kName; fit(): the best profile for these rows, which it can encode; encode() and decode() as
// row_codec.h describes them.
template <Codec codec>
struct CodecTraits;

template <>
struct CodecTraits<Codec::kRaw> : CodecDefaults {
  static constexpr const char* kName = "raw";
  static Profile fit(const RowTable& rows, const FitOptions&) { return blank_profile(rows); }
  static uint32_t encode(const ProfileRef&, const std::byte*, std::byte*) { return 0; }
  static uint32_t decode(const ProfileRef&, const CodedRow&, std::byte*) { return 0; }
};

template <>
struct CodecTraits<Codec::kInvariant> : CodecDefaults {
  static constexpr const char* kName = "invariant";
  static constexpr bool kHasChunks = true;
  static void validate(const Profile& profile);
  static Profile fit(const RowTable& rows, const FitOptions& options);
  template <typename P, typename Visit>
  static void visit_tables(P& profile, Visit&& visit) {
    visit(profile.mask, profile.num_chunks());
    visit(profile.value, profile.num_chunks());
  }
  static uint32_t encode(const ProfileRef& profile, const std::byte* row, std::byte* out) {
    return encode_invariant(profile, row, out);
  }
  static uint32_t decode(const ProfileRef& profile, const CodedRow& in, std::byte* row) {
    return decode_invariant(profile, in.begin, in.bytes, row);
  }
};

template <>
struct CodecTraits<Codec::kExponent> : CodecDefaults {
  static constexpr const char* kName = "exponent";
  static constexpr const char* kRows = "float32, float16 or bfloat16 rows";
  static constexpr bool kHasCodeBits = true;
  static std::string unfit(const RowTable& rows) { return exponent_bits(rows.dtype) ? "" : name_of(rows.dtype); }
  static void validate(const Profile& profile);
  static Profile fit(const RowTable& rows, const FitOptions& options);
  template <typename P, typename Visit>
  static void visit_tables(P& profile, Visit&& visit) {
    visit(profile.base, profile.num_columns);
  }
  static uint32_t encode(const ProfileRef& profile, const std::byte* row, std::byte* out) {
    return encode_exponent(profile, row, out);
  }
  static uint32_t decode(const ProfileRef& profile, const CodedRow& in, std::byte* row) {
    return decode_exponent(profile, in.begin, in.bytes, row);
  }
};

template <>
struct CodecTraits<Codec::kLayers> : CodecTraits<Codec::kExponent> {
  static constexpr const char* kName = "layers";
  static constexpr uint32_t kVersion = 3;
  static constexpr bool kNeedsGain = true;  // over codec exponent, which decodes faster
  static constexpr const char* kRows = "float16 or bfloat16 rows";
  static constexpr bool kHasLongest = true;
  static std::string unfit(const RowTable& rows) { return can_have_layers(rows.dtype) ? "" : name_of(rows.dtype); }
  static void validate(const Profile& profile);
  static Profile fit(const RowTable& rows, const FitOptions& options);
  template <typename P, typename Visit>
  static void visit_tables(P& profile, Visit&& visit) {
    visit(profile.base, profile.num_columns);
    visit(profile.steps, profile.steps.size());
  }
  static uint32_t encode(const ProfileRef& profile, const std::byte* row, std::byte* out) {
    return encode_layers(profile, row, out);
  }
  static uint32_t decode(const ProfileRef& profile, const CodedRow& in, std::byte* row) {
    return decode_layers(profile, in.begin, in.bytes, row);
  }
};

template <>
struct CodecTraits<Codec::kSparse> : CodecDefaults {
  static constexpr const char* kName = "sparse";
  static void validate(const Profile& profile);
  static Profile fit(const RowTable& rows, const FitOptions& options);
  static uint32_t encode(const ProfileRef& profile, const std::byte* row, std::byte* out) {
    return encode_sparse(profile, row, out);
  }
  static uint32_t decode(const ProfileRef& profile, const CodedRow& in, std::byte* row) {
    return decode_sparse(profile, in.begin, in.bytes, row);
  }
};

template <>
struct CodecTraits<Codec::kPlanes> : CodecTraits<Codec::kExponent> {
  static constexpr const char* kName = "planes";
  static constexpr uint32_t kVersion = 2;
  static constexpr bool kIsAutomatic = false;
  static constexpr const char* kRows = "float32 rows";
  static constexpr bool kHasMantissaBits = true;
  static std::string unfit(const RowTable& rows) { return rows.dtype == Dtype::kFloat32 ? "" : name_of(rows.dtype); }
  static void validate(const Profile& profile);
  static Profile fit(const RowTable& rows, const FitOptions& options);  // without slot_bytes
  static uint32_t encode(const ProfileRef& profile, const std::byte* row, std::byte* out) {
    return encode_plane_a(profile, row, out);
  }
  static uint32_t decode(const ProfileRef& profile, const CodedRow& in, std::byte* row) {
    return decode_planes(profile, in.begin, in.bytes, in.plane_b, row);
  }
};

template <>
struct CodecTraits<Codec::kDictionary> : CodecDefaults {
  static constexpr const char* kName = "dictionary";
  static constexpr uint32_t kVersion = 4;
  static constexpr const char* kRows = "rows with at most 256 different elements";
  static constexpr bool kHasCodeBits = true;
  static std::string unfit(const RowTable& rows);
  static void validate(const Profile& profile);
  static Profile fit(const RowTable& rows, const FitOptions& options);
  template <typename P, typename Visit>
  static void visit_tables(P& profile, Visit&& visit) {
    visit(profile.elements, std::size_t{1} << profile.code_bits % 32);
  }
  static uint32_t encode(const ProfileRef& profile, const std::byte* row, std::byte* out);
  static uint32_t decode(const ProfileRef& profile, const CodedRow& in, std::byte* row);
};

// In the order in which fit() tries them and --help names them.
inline constexpr std::array kCodecs = {Codec::kRaw,    Codec::kInvariant,  Codec::kExponent, Codec::kLayers,
                                       Codec::kSparse, Codec::kDictionary, Codec::kPlanes};

constexpr bool is_codec(Codec codec) { return std::ranges::find(kCodecs, codec) != kCodecs.end(); }

// Returns f(CodecTraits<codec>{}), where is_codec(codec).
template <std::size_t first = 0, typename F>
constexpr decltype(auto) with_codec(Codec codec, F&& f) {
  if constexpr (first + 1 < kCodecs.size()) {
    if (codec != kCodecs[first]) return with_codec<first + 1>(codec, f);
  }
  return f(CodecTraits<kCodecs[first]>{});
}

// Of profiles and files.
inline constexpr uint32_t kNewestVersion = [] {
  uint32_t newest = 1;
  for (const Codec codec : kCodecs) {
    newest = std::max(newest, with_codec(codec, [](auto traits) { return traits.kVersion; }));
  }
  return newest;
}();

}  // namespace cohort::ibp
