// Codec "dictionary": its profile, and one row on the host. FORMAT.md 4.7.
#include <bit>
#include <set>

#include "base/check.h"
#include "base/format.h"
#include "ibp/bits.h"
#include "ibp/codecs.h"

namespace cohort::ibp {
namespace {

constexpr std::size_t kMostElements = std::size_t{1} << kMostDictionaryBits;

uint64_t element_at(const std::byte* row, uint32_t column, uint32_t bytes) {
  uint64_t element = 0;
  std::memcpy(&element, row + std::size_t{column} * bytes, bytes);
  return element;
}

// The different elements of these rows, or the first kMostElements + 1 of them.
std::set<uint64_t> elements_of(const RowTable& rows) {
  std::set<uint64_t> elements;
  const int64_t count = rows.num_rows * rows.num_columns;
  uint64_t last = 0;
  for (int64_t i = 0; i < count && elements.size() <= kMostElements; ++i) {
    const uint64_t element = element_at(rows.row(i / rows.num_columns), static_cast<uint32_t>(i % rows.num_columns),
                                        element_bytes(rows.dtype));
    if (i == 0 || element != last) elements.insert(element);
    last = element;
  }
  return elements;
}

}  // namespace

using Dictionary = CodecTraits<Codec::kDictionary>;

std::string Dictionary::unfit(const RowTable& rows) {
  return elements_of(rows).size() <= kMostElements ? "" : base::format("more than {}", kMostElements);
}

void Dictionary::validate(const Profile& profile) {
  if (profile.code_bits < 1 || profile.code_bits > kMostDictionaryBits) {
    throw base::Error({"profile: code_bits", base::format("1 to {}", kMostDictionaryBits),
                       base::format("{}", profile.code_bits), "the profile is damaged or was not made by fit()"});
  }
  const uint64_t outside = ~low_bits(element_bytes(profile.dtype) * 8);
  const bool fits = profile.elements.size() == std::size_t{1} << profile.code_bits &&
                    std::ranges::is_sorted(profile.elements) && (profile.elements.back() & outside) == 0;
  if (fits) return;
  throw base::Error({"profile: elements", base::format("{} ascending elements", 1u << profile.code_bits),
                     base::format("{} that are not", profile.elements.size()),
                     "the profile is damaged or was not made by fit()"});
}

Profile Dictionary::fit(const RowTable& rows, const FitOptions&) {
  const std::set<uint64_t> elements = elements_of(rows);
  Profile profile = blank_profile(rows);
  profile.codec = Codec::kDictionary;
  profile.code_bits = std::max(1, static_cast<int>(std::bit_width(elements.size() - 1)));
  profile.elements.assign(elements.begin(), elements.end());
  profile.elements.resize(std::size_t{1} << profile.code_bits, profile.elements.back());
  return profile;
}

uint32_t Dictionary::encode(const ProfileRef& profile, const std::byte* row, std::byte* out) {
  BitWriter stream(out);
  for (uint32_t column = 0; column < profile.num_columns; ++column) {
    const uint64_t element = element_at(row, column, profile.element_bytes);
    const uint32_t code = code_of(profile, element);
    if (profile.elements[code] != element) return 0;
    stream.put(code, profile.code_bits);
  }
  return stream.finish();
}

uint32_t Dictionary::decode(const ProfileRef& profile, const CodedRow& in, std::byte* row) {
  const uint32_t bytes = dictionary_row_bytes(profile);
  if (in.bytes < bytes) return 0;
  for (uint32_t column = 0; column < profile.num_columns; ++column) {
    const uint64_t element =
        profile.elements[read_bits(in.begin, uint64_t{column} * profile.code_bits, profile.code_bits)];
    std::memcpy(row + std::size_t{column} * profile.element_bytes, &element, profile.element_bytes);
  }
  return bytes;
}

}  // namespace cohort::ibp
