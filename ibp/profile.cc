#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/checksum.h"
#include "base/format.h"
#include "base/mapping.h"
#include "base/whole_file.h"
#include "ibp/bits.h"
#include "ibp/codecs.h"

namespace cohort::ibp {
namespace {

using base::Error;

constexpr uint32_t kMostMantissaBits = 22;  // of plane A: plane B has one at least
constexpr std::array<char, 8> kProfileMagic = {'I', 'B', 'P', 'P', 'R', 'O', 'F', '1'};

// The fixed part of a serialised profile: FORMAT.md 5. The tables follow it, then a CRC-32C of all before.
struct ProfileHeader {
  std::array<char, 8> magic = kProfileMagic;
  uint32_t version = 1;
  uint8_t codec = 0;
  uint8_t dtype = 0;
  uint8_t chunk_bytes = 0;  // planes: mantissa_bits
  uint8_t code_bits = 0;
  uint32_t num_columns = 0;
  uint32_t slot_bytes = 0;
  uint32_t threshold_percent = 0;  // layers: longest_bytes
  uint32_t value_bits = 0;
  uint64_t constant = 0;
  uint64_t value_prefix = 0;
};
static_assert(sizeof(ProfileHeader) == 48);

// From a profile to its header or back.
template <typename From, typename To>
void copy_fields(const From& from, To& to) {
  to.codec = static_cast<decltype(to.codec)>(from.codec);
  to.dtype = static_cast<decltype(to.dtype)>(from.dtype);
  to.chunk_bytes = static_cast<decltype(to.chunk_bytes)>(from.chunk_bytes);
  to.code_bits = static_cast<decltype(to.code_bits)>(from.code_bits);
  to.num_columns = from.num_columns;
  to.slot_bytes = from.slot_bytes;
  to.threshold_percent = from.threshold_percent;
  to.value_bits = from.value_bits;
  to.constant = from.constant;
  to.value_prefix = from.value_prefix;
}

void require_that(bool condition, const std::string& place, const char* expected, const std::string& found) {
  if (!condition) throw Error({place, expected, found, "the profile is damaged or was not made by fit()"});
}

bool known_dtype(uint8_t dtype) { return dtype >= 1 && dtype <= 6; }

template <typename T>
void append(std::vector<std::byte>& bytes, const T* values, std::size_t count) {
  const std::size_t before = bytes.size();
  bytes.resize(before + count * sizeof(T));
  if (count) std::memcpy(bytes.data() + before, values, count * sizeof(T));
}

// Makes room for a table that was read.
template <typename T>
void resize(std::vector<T>& table, std::size_t length) {
  table.resize(length);
}
template <typename T, std::size_t length>
void resize(std::array<T, length>&, std::size_t) {}

// Bytes of the tables that follow the header.
uint64_t table_bytes(const Profile& profile) {
  uint64_t bytes = 0;
  with_codec(profile.codec, [&](auto traits) {
    traits.visit_tables(profile, [&](const auto& table, uint64_t length) { bytes += length * sizeof(table[0]); });
  });
  return bytes;
}

}  // namespace

void CodecTraits<Codec::kInvariant>::validate(const Profile& profile) {
  require_that(profile.chunk_bytes == 4 || profile.chunk_bytes == 8, "profile: chunk_bytes", "4 or 8",
               base::format("{}", profile.chunk_bytes));
  require_that(profile.mask.size() == profile.num_chunks() && profile.value.size() == profile.num_chunks(),
               "profile: mask and value", "one word a chunk", base::format("{}", profile.mask.size()));
  const uint64_t allowed = low_bits(profile.chunk_bytes * 8);
  for (std::size_t i = 0; i < profile.mask.size(); ++i) {
    const bool inside = (profile.mask[i] & ~allowed) == 0 && (profile.value[i] & ~profile.mask[i]) == 0;
    require_that(inside, "profile: value", "bits inside the mask only",
                 base::format("bits outside the mask in chunk {}", i));
  }
}

void CodecTraits<Codec::kExponent>::validate(const Profile& profile) {
  const uint32_t bits = exponent_bits(profile.dtype);
  require_that(bits > 0, "profile: dtype", "a float for codec exponent", name_of(profile.dtype));
  require_that(profile.code_bits >= 1 && profile.code_bits <= 4, "profile: code_bits", "1 to 4",
               base::format("{}", profile.code_bits));
  require_that(profile.base.size() == profile.num_columns, "profile: base", "one exponent a column",
               base::format("{}", profile.base.size()));
  const uint32_t last = (1u << bits) + 1 - (1u << profile.code_bits);
  for (const uint8_t base : profile.base) {
    require_that(base <= last, "profile: base", "codes that stay in the exponent's range", base::format("{}", base));
  }
}

// Ten different steps that no code of the first layer means.
void CodecTraits<Codec::kLayers>::validate(const Profile& profile) {
  require_that(can_have_layers(profile.dtype), "profile: dtype", "float16 or bfloat16 for codec layers",
               name_of(profile.dtype));
  CodecTraits<Codec::kExponent>::validate(profile);
  require_that(profile.code_bits == kFirstBits, "profile: code_bits", "2 for codec layers",
               base::format("{}", profile.code_bits));
  require_that(profile.longest_bytes < profile.row_bytes(), "profile: longest_bytes", "fewer than a raw row's",
               base::format("{}", profile.longest_bytes));
  std::array<bool, 256> taken{};
  for (uint32_t code = 1; code < 1u << kFirstBits; ++code) taken[code] = true;
  for (const uint8_t step : profile.steps) {
    const bool is_new = step >> exponent_bits(profile.dtype) == 0 && !std::exchange(taken[step], true);
    require_that(is_new, "profile: steps", "different ones within the exponent's range", base::format("{}", step));
  }
}

void CodecTraits<Codec::kPlanes>::validate(const Profile& profile) {
  require_that(profile.dtype == Dtype::kFloat32, "profile: dtype", "float32 for codec planes", name_of(profile.dtype));
  require_that(profile.mantissa_bits <= kMostMantissaBits, "profile: mantissa_bits", "0 to 22",
               base::format("{}", profile.mantissa_bits));
  require_that(profile.slot_bytes > 0, "profile: slot_bytes", "a stride for codec planes", "0");
  CodecTraits<Codec::kExponent>::validate(profile);
}

void CodecTraits<Codec::kSparse>::validate(const Profile& profile) {
  const uint32_t bits = element_bytes(profile.dtype) * 8;
  require_that(profile.value_bits >= 1 && profile.value_bits <= bits, "profile: value_bits", "1 to the element's bits",
               base::format("{}", profile.value_bits));
  require_that((profile.constant & ~low_bits(bits)) == 0, "profile: constant", "one element",
               base::format("{:#x}", profile.constant));
  require_that((profile.value_prefix & ~low_bits(bits - profile.value_bits)) == 0, "profile: value_prefix",
               "the bits above value_bits", base::format("{:#x}", profile.value_prefix));
}

uint32_t element_bytes(Dtype dtype) {
  switch (dtype) {
    case Dtype::kUint8:
      return 1;
    case Dtype::kFloat16:
    case Dtype::kBfloat16:
      return 2;
    case Dtype::kFloat32:
    case Dtype::kBits32:
      return 4;
    case Dtype::kBits64:
      return 8;
  }
  throw Error({"dtype", "one of uint8, float16, bfloat16, float32, bits32, bits64",
               base::format("number {}", static_cast<int>(dtype)), ""});
}

uint32_t exponent_bits(Dtype dtype) {
  if (dtype == Dtype::kFloat16) return 5;
  return dtype == Dtype::kFloat32 || dtype == Dtype::kBfloat16 ? 8 : 0;
}

bool can_have_layers(Dtype dtype) { return dtype == Dtype::kFloat16 || dtype == Dtype::kBfloat16; }

std::string name_of(Dtype dtype) {
  constexpr std::array<const char*, 7> kNames = {"?", "uint8", "float16", "bfloat16", "float32", "bits32", "bits64"};
  return known_dtype(static_cast<uint8_t>(dtype)) ? kNames[static_cast<uint8_t>(dtype)] : kNames[0];
}

std::string name_of(Codec codec) {
  return with_codec(codec, [](auto traits) { return traits.kName; });
}

std::string name_of(Layout layout) {
  constexpr std::array<const char*, 4> kNames = {"packed", "in place", "slots", "?"};
  return kNames[static_cast<uint8_t>(layout) & 3];
}

uint32_t format_version(Codec codec) {
  return with_codec(codec, [](auto traits) { return traits.kVersion; });
}

Codec codec_named(const std::string& name) {
  std::string names = "auto";
  for (const Codec codec : kCodecs) {
    if (name == name_of(codec)) return codec;
    names += (codec == kCodecs.back() ? " or " : ", ") + name_of(codec);
  }
  throw Error({"codec", names, name, ""});
}

void check_table(const RowTable& rows, const std::string& place) {
  const uint64_t bytes = uint64_t{rows.num_columns} * element_bytes(rows.dtype);
  if (rows.num_rows < 0) throw Error({place + ": rows", "0 or more", base::format("{}", rows.num_rows), ""});
  if (bytes < 1 || bytes > kMaxRowBytes) {
    throw Error({place + ": row width", base::format("1 to {} bytes", kMaxRowBytes), base::format("{} bytes", bytes),
                 "split wider rows into column groups"});
  }
  if (!rows.data && rows.num_rows > 0) throw Error({place + ": rows", "an address", "a null pointer", ""});
}

void check_table_fits(const RowTable& rows, const Profile& profile, const std::string& place) {
  validate(profile);
  check_table(rows, place);
  if (rows.dtype != profile.dtype || rows.num_columns != profile.num_columns) {
    throw Error({place + ": rows", base::format("{} x {}", name_of(profile.dtype), profile.num_columns),
                 base::format("{} x {}", name_of(rows.dtype), rows.num_columns),
                 "the profile was fitted on rows of another dtype or width"});
  }
}

double Profile::error_bound() const {
  return codec == Codec::kPlanes ? std::ldexp(1.0, -static_cast<int>(mantissa_bits) - 1) : 0;
}

Profile raw_profile(int64_t row_bytes) {
  Profile profile;
  profile.dtype = Dtype::kUint8;
  profile.num_columns = static_cast<uint32_t>(row_bytes);
  return profile;
}

void validate(const Profile& profile) {
  require_that(known_dtype(static_cast<uint8_t>(profile.dtype)), "profile: dtype", "a known number",
               base::format("{}", static_cast<int>(profile.dtype)));
  const uint64_t row_bytes = uint64_t{profile.num_columns} * element_bytes(profile.dtype);
  require_that(row_bytes >= 1 && row_bytes <= kMaxRowBytes, "profile: row width", "1 to 65536 bytes",
               base::format("{}", row_bytes));
  require_that(profile.slot_bytes % 16 == 0 && profile.slot_bytes <= round_up(row_bytes, 16), "profile: slot_bytes",
               "a multiple of 16 up to the row", base::format("{}", profile.slot_bytes));
  require_that(is_codec(profile.codec), "profile: codec", "the number of a codec",
               base::format("{}", static_cast<int>(profile.codec)));
  with_codec(profile.codec, [&](auto traits) {
    const auto demand_unused = [&](const char* field, bool has, uint32_t value) {
      require_that(has || value == 0, base::format("profile: {}", field), "0 for this codec",
                   base::format("{}", value));
    };
    demand_unused("chunk_bytes", traits.kHasChunks, profile.chunk_bytes);
    demand_unused("code_bits", traits.kHasCodeBits, profile.code_bits);
    demand_unused("longest_bytes", traits.kHasLongest, profile.longest_bytes);
    demand_unused("mantissa_bits", traits.kHasMantissaBits, profile.mantissa_bits);
    traits.validate(profile);
  });
}

std::vector<std::byte> to_bytes(const Profile& profile) {
  ProfileHeader header;
  copy_fields(profile, header);
  header.version = format_version(profile.codec);
  if (profile.codec == Codec::kPlanes) header.chunk_bytes = static_cast<uint8_t>(profile.mantissa_bits);
  if (profile.codec == Codec::kLayers) header.threshold_percent = profile.longest_bytes;
  std::vector<std::byte> bytes;
  append(bytes, &header, 1);
  with_codec(profile.codec, [&](auto traits) {
    traits.visit_tables(profile, [&](const auto& table, std::size_t) { append(bytes, table.data(), table.size()); });
  });
  const uint32_t checksum = base::crc32c(bytes);
  append(bytes, &checksum, 1);
  return bytes;
}

Profile profile_from(std::span<const std::byte> bytes, const std::string& place) {
  const char* kHint = "the file is damaged, or not a profile";
  ProfileHeader header;
  if (bytes.size() < sizeof(header) + 4) {
    throw Error({place, "a profile of at least 52 bytes", base::format("{} bytes", bytes.size()), kHint});
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != kProfileMagic)
    throw Error({place, "bytes that begin with IBPPROF1", "other bytes at the beginning", kHint});
  const auto codec = static_cast<Codec>(header.codec);
  if (!is_codec(codec)) throw Error({place, "a known codec", base::format("number {}", header.codec), kHint});
  if (header.version != format_version(codec)) {
    throw Error({place, base::format("profile version {} for codec {}", format_version(codec), name_of(codec)),
                 base::format("version {}", header.version), "a newer program wrote it, or it is damaged"});
  }
  const auto body = bytes.first(bytes.size() - 4);
  const auto checksum = load_as<uint32_t>(bytes.data() + body.size());
  if (const uint32_t found = base::crc32c(body); found != checksum) {
    throw Error({place, base::format("a profile with checksum {:08x}, as it says", checksum),
                 base::format("checksum {:08x}", found), kHint});
  }
  Profile profile;
  copy_fields(header, profile);
  if (codec == Codec::kPlanes) profile.mantissa_bits = std::exchange(profile.chunk_bytes, 0);
  if (codec == Codec::kLayers) profile.longest_bytes = std::exchange(profile.threshold_percent, 0);
  require_that(known_dtype(header.dtype), place, "a known dtype", base::format("number {}", header.dtype));
  const std::byte* tables = bytes.data() + sizeof(header);
  if (body.size() - sizeof(header) != table_bytes(profile)) {
    throw Error({place, base::format("{} bytes of tables", table_bytes(profile)),
                 base::format("{}", body.size() - sizeof(header)), kHint});
  }
  with_codec(codec, [&](auto traits) {
    traits.visit_tables(profile, [&](auto& table, std::size_t length) {
      resize(table, length);
      if (length) std::memcpy(table.data(), tables, length * sizeof(table[0]));
      tables += length * sizeof(table[0]);
    });
  });
  validate(profile);
  return profile;
}

void save(const Profile& profile, const std::string& path) {
  validate(profile);
  base::write_whole(path, to_bytes(profile));
}

Profile load_profile(const std::string& path) {
  const base::Mapping file = base::Mapping::of(path);
  return profile_from({file.data(), file.bytes()}, path);
}

}  // namespace cohort::ibp
