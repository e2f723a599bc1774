// What each codec learns from the sampled rows. FORMAT.md 4 says what the profile's fields mean.

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_map>

#include "base/check.h"
#include "base/format.h"
#include "ibp/bits.h"
#include "ibp/codecs.h"

namespace cohort::ibp {
namespace {

uint64_t load_chunk(const RowTable& rows, int64_t row, uint32_t offset, uint32_t chunk_bytes) {
  uint64_t chunk = 0;
  std::memcpy(&chunk, rows.row(row) + offset, std::min(chunk_bytes, rows.row_bytes() - offset));
  return chunk;
}

// How often each bit is set: uint32 [num_chunks, chunk_bytes * 8].
std::vector<uint32_t> count_bits(const RowTable& rows, const Profile& profile) {
  const uint32_t bits = profile.chunk_bytes * 8;
  std::vector<uint32_t> counts(std::size_t{profile.num_chunks()} * bits);
#pragma omp parallel for schedule(static) if (worth_threads(rows.num_rows * int64_t{rows.row_bytes()}))
  for (uint32_t chunk = 0; chunk < profile.num_chunks(); ++chunk) {
    uint32_t* count = &counts[std::size_t{chunk} * bits];
    for (int64_t row = 0; row < rows.num_rows; ++row) {
      uint64_t value = load_chunk(rows, row, chunk * profile.chunk_bytes, profile.chunk_bytes);
      for (; value; value &= value - 1) ++count[std::countr_zero(value)];
    }
  }
  return counts;
}

// A bit is invariant when at least `percent` of the rows agree on it.
void set_masks(const std::vector<uint32_t>& counts, int64_t num_rows, uint32_t percent, Profile& profile) {
  const uint32_t bits = profile.chunk_bytes * 8;
  const uint64_t needed = uint64_t{percent} * static_cast<uint64_t>(num_rows);
  profile.threshold_percent = percent;
  profile.mask.assign(profile.num_chunks(), 0);
  profile.value.assign(profile.num_chunks(), 0);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const uint64_t ones = counts[i];
    const uint64_t zeros = static_cast<uint64_t>(num_rows) - ones;
    const uint64_t bit = uint64_t{1} << (i % bits);
    if (ones * 100 >= needed) {
      profile.mask[i / bits] |= bit;
      profile.value[i / bits] |= bit;
    } else if (zeros * 100 >= needed) {
      profile.mask[i / bits] |= bit;
    }
  }
}

uint32_t exponent_field(const RowTable& rows, int64_t row, uint32_t column) {
  if (rows.dtype == Dtype::kFloat32) return (load_as<uint32_t>(rows.row(row) + column * 4) >> 23) & 0xff;
  const uint32_t bits = load_as<uint16_t>(rows.row(row) + column * 2);
  return rows.dtype == Dtype::kFloat16 ? (bits >> 10) & 0x1f : (bits >> 7) & 0xff;
}

using Histogram = std::array<uint32_t, 256>;

std::vector<Histogram> count_exponents(const RowTable& rows) {
  std::vector<Histogram> counts(rows.num_columns);
#pragma omp parallel for schedule(static) if (worth_threads(rows.num_rows * int64_t{rows.row_bytes()}))
  for (uint32_t column = 0; column < rows.num_columns; ++column) {
    for (int64_t row = 0; row < rows.num_rows; ++row) ++counts[column][exponent_field(rows, row, column)];
  }
  return counts;
}

// The run of `length` exponents that holds the most elements: its first, and how many lie outside it.
std::pair<uint8_t, uint64_t> best_run(const Histogram& counts, uint32_t num_exponents, uint32_t length) {
  uint64_t inside = 0, total = 0;
  for (uint32_t e = 0; e < num_exponents; ++e) total += counts[e];
  for (uint32_t e = 0; e < length; ++e) inside += counts[e];
  uint64_t best = inside;
  uint32_t base = 0;
  for (uint32_t first = 1; first + length <= num_exponents; ++first) {
    inside += counts[first + length - 1];
    inside -= counts[first - 1];
    if (inside > best) {
      best = inside;
      base = first;
    }
  }
  return {static_cast<uint8_t>(base), total - best};
}

// The non-zero elements of the sample, as integers.
template <typename Visit>
void visit_nonzeros(const RowTable& rows, Visit visit) {
  const uint32_t size = element_bytes(rows.dtype);
  const int64_t count = rows.num_rows * rows.num_columns;
  for (int64_t i = 0; i < count; ++i) {
    uint64_t value = 0;
    std::memcpy(&value, static_cast<const std::byte*>(rows.data) + i * size, size);
    if (value) visit(value);
  }
}

// The commonest non-zero element; ties go to the smaller. Counts at most 65536 different ones.
uint64_t commonest_nonzero(const RowTable& rows) {
  std::unordered_map<uint64_t, uint64_t> counts;
  visit_nonzeros(rows, [&](uint64_t value) {
    if (counts.size() < 65536 || counts.count(value)) ++counts[value];
  });
  uint64_t best = 1, best_count = 0;
  for (const auto& [value, count] : counts) {
    if (count > best_count || (count == best_count && value < best)) {
      best = value;
      best_count = count;
    }
  }
  return best;
}

}  // namespace

Profile CodecTraits<Codec::kInvariant>::fit(const RowTable& rows, const FitOptions& options) {
  Profile profile = blank_profile(rows);
  profile.codec = Codec::kInvariant;
  profile.chunk_bytes = options.chunk_bytes;
  const std::vector<uint32_t> counts = count_bits(rows, profile);
  if (options.threshold_percent) {
    set_masks(counts, rows.num_rows, options.threshold_percent, profile);
    return profile;
  }
  Profile best;
  uint64_t best_bytes = std::numeric_limits<uint64_t>::max();
  for (uint32_t percent = 70; percent <= 95; percent += 5) {
    set_masks(counts, rows.num_rows, percent, profile);
    const uint64_t bytes = total_bytes(coded_lengths(rows, profile), rows.row_bytes());
    if (bytes >= best_bytes) continue;
    best_bytes = bytes;
    best = profile;
  }
  return best;
}

Profile CodecTraits<Codec::kExponent>::fit(const RowTable& rows, const FitOptions&) {
  const uint32_t exponent_bits = ibp::exponent_bits(rows.dtype);
  const std::vector<Histogram> counts = count_exponents(rows);
  Profile best;
  uint64_t best_bits = std::numeric_limits<uint64_t>::max();
  for (uint32_t code_bits = 1; code_bits <= 4; ++code_bits) {
    Profile profile = blank_profile(rows);
    profile.codec = Codec::kExponent;
    profile.code_bits = code_bits;
    uint64_t bits = uint64_t{code_bits} * rows.num_columns * static_cast<uint64_t>(rows.num_rows);
    for (const Histogram& histogram : counts) {
      const auto [base, escapes] = best_run(histogram, 1u << exponent_bits, (1u << code_bits) - 1);
      profile.base.push_back(base);
      bits += escapes * exponent_bits;
    }
    if (bits >= best_bits) continue;
    best_bits = bits;
    best = std::move(profile);
  }
  return best;
}

Profile CodecTraits<Codec::kLayers>::fit(const RowTable& rows, const FitOptions&) {
  const uint32_t num_exponents = 1u << exponent_bits(rows.dtype), first_codes = (1u << kFirstBits) - 1;
  Profile profile = blank_profile(rows);
  profile.codec = Codec::kLayers;
  profile.code_bits = kFirstBits;
  std::array<uint64_t, 256> counts{};  // of each step that the first layer has no code for
  for (const Histogram& histogram : count_exponents(rows)) {
    const uint32_t base = best_run(histogram, num_exponents, first_codes).first;
    profile.base.push_back(static_cast<uint8_t>(base));
    for (uint32_t step = 0; step < num_exponents; ++step) {
      if (step == 0 || step > first_codes) counts[step] += histogram[(base + step - 1) % num_exponents];
    }
  }
  std::vector<uint8_t> steps{0};
  for (uint32_t step = first_codes + 1; step < num_exponents; ++step) steps.push_back(static_cast<uint8_t>(step));
  std::stable_sort(steps.begin(), steps.end(), [&](uint8_t a, uint8_t b) { return counts[a] > counts[b]; });
  std::copy_n(steps.begin(), profile.steps.size(), profile.steps.begin());
  return profile;
}

Profile CodecTraits<Codec::kPlanes>::fit(const RowTable& rows, const FitOptions& options) {
  Profile profile = CodecTraits<Codec::kExponent>::fit(rows, options);
  profile.codec = Codec::kPlanes;
  profile.mantissa_bits = options.mantissa_bits;
  return profile;
}

Profile CodecTraits<Codec::kSparse>::fit(const RowTable& rows, const FitOptions&) {
  Profile profile = blank_profile(rows);
  profile.codec = Codec::kSparse;
  profile.constant = commonest_nonzero(rows);
  uint64_t differing = 0;
  visit_nonzeros(rows, [&](uint64_t value) { differing |= value ^ profile.constant; });
  profile.value_bits = std::max(1u, static_cast<uint32_t>(std::bit_width(differing)));
  profile.value_prefix = profile.value_bits == 64 ? 0 : profile.constant >> profile.value_bits;
  return profile;
}

}  // namespace cohort::ibp
