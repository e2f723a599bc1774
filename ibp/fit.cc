#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "base/random.h"
#include "ibp/bits.h"
#include "ibp/codecs.h"
#include "ibp/packing.h"

namespace cohort::ibp {
namespace {

using base::Error;

// The slot stride with the fewest lines a row, then the least memory, that takes no more than so much memory.
struct Slot {
  uint32_t bytes = 0;
  uint32_t read = 0;  // of them: longer rows are in the overflow area
  double lines = 0;
  double stored = 0;
};

Slot best_slot(const std::vector<uint32_t>& lengths, uint32_t row_bytes, bool whole_slots, double most_stored) {
  std::vector<uint32_t> sorted(lengths);
  for (uint32_t& length : sorted) length = length ? length : ~0u;
  std::sort(sorted.begin(), sorted.end());
  const auto overflow_stride = static_cast<uint32_t>(round_up(row_bytes, 16));
  const double raw_lines = mean_lines_at_stride(overflow_stride, row_bytes);
  Slot best{0, 0, INFINITY, INFINITY};
  const uint32_t most_unread = whole_slots ? 0 : kLineBytes - 16;
  for (uint32_t bytes = 16; bytes <= overflow_stride; bytes += 16) {
    for (uint32_t unread = 0; unread <= std::min(most_unread, bytes - 16); unread += 16) {
      const uint32_t read = bytes - unread;
      const auto fit = std::upper_bound(sorted.begin(), sorted.end(), read) - sorted.begin();
      const double overflow = 1.0 - static_cast<double>(fit) / static_cast<double>(sorted.size());
      const Slot slot{bytes, read, (1 - overflow) * mean_lines_at_stride(bytes, read) + overflow * raw_lines,
                      bytes + overflow * overflow_stride};
      if (slot.stored > most_stored) continue;
      const bool fewer = slot.lines < best.lines - 1e-9;
      if (fewer || (slot.lines < best.lines + 1e-9 && slot.stored < best.stored)) best = slot;
    }
  }
  return best;
}

// Of plane A in slots, and plane B: what a fetch of both reads.
Candidate measure_planes(Candidate plane_a, Profile profile, const Slot& slot) {
  profile.slot_bytes = slot.bytes;
  const uint32_t plane_b = ProfileTables(profile).ref().plane_b_bytes();
  Candidate result = std::move(plane_a);
  result.bytes_per_row += (1 - result.raw_share) * plane_b;
  result.lines_per_row = slot.lines + mean_lines_at_stride(plane_b, plane_b);
  result.stored_per_row = slot.stored + plane_b;
  result.profile = std::move(profile);
  return result;
}

Candidate measure(const RowTable& sample, Profile profile) {
  const std::vector<uint32_t> lengths = coded_lengths(sample, profile);
  const auto count = static_cast<double>(lengths.size());
  Candidate result;
  result.bytes_per_row = static_cast<double>(total_bytes(lengths, sample.row_bytes())) / count;
  result.raw_share = static_cast<double>(std::count(lengths.begin(), lengths.end(), 0u)) / count;
  uint64_t group_begin = 0;
  uint32_t end = 0;  // of the rows so far, in their group
  double lines = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (i % kGroupRows == 0) group_begin += round_up_to_line(std::exchange(end, 0));
    const uint32_t bytes = lengths[i] ? lengths[i] : static_cast<uint32_t>(round_up(sample.row_bytes(), 4));
    const uint32_t offset = place_in_group(end, bytes);
    lines += link_lines(group_begin + offset, bytes);
    end = offset + bytes;
  }
  result.lines_per_row = lines / count;
  result.stored_per_row = static_cast<double>(group_begin + round_up_to_line(end)) / count;
  const bool whole_slots = slots_are_read_whole(profile.codec);
  if (profile.codec == Codec::kPlanes) {
    const Slot slot = best_slot(lengths, sample.row_bytes(), whole_slots, INFINITY);
    return measure_planes(std::move(result), std::move(profile), slot);
  }
  constexpr double kMostMemory = 1.1;  // over packed rows and their entries, for the lines that slots save
  const double most = std::min<double>(kMostMemory * (result.stored_per_row + sizeof(uint64_t)), sample.row_bytes());
  const Slot slot = best_slot(lengths, sample.row_bytes(), whole_slots, most);
  if (profile.codec != Codec::kRaw && slot.lines <= result.lines_per_row) {
    profile.slot_bytes = slot.bytes;
    if (slot.read < slot.bytes) profile.longest_bytes = slot.read;
    result.lines_per_row = slot.lines;
    result.stored_per_row = slot.stored;
  }
  result.profile = std::move(profile);
  return result;
}

// Whether a codec that takes longer to decode saves lines or memory in return.
bool gains(const Candidate& slower, const Candidate& faster) {
  return slower.lines_per_row < faster.lines_per_row - 1e-9 || slower.stored_per_row < faster.stored_per_row - 1e-9;
}

// One candidate for each codec that options.codec names.
std::vector<Candidate> measure_codecs(const RowTable& sample, const FitOptions& options) {
  const bool all = options.codec == "auto";
  const Codec named = all ? Codec::kRaw : codec_named(options.codec);
  std::vector<Candidate> candidates;
  const auto try_codec = [&](auto traits) {
    const std::string unfit = traits.unfit(sample);
    if (all && (!traits.kIsAutomatic || !unfit.empty())) return;
    if (!unfit.empty()) {
      throw Error({base::format("fit: codec {}", traits.kName), traits.kRows, unfit, "take another codec, or auto"});
    }
    Candidate candidate = measure(sample, traits.fit(sample, options));
    if (all && traits.kNeedsGain && !gains(candidate, candidates.back())) return;
    candidates.push_back(std::move(candidate));
  };
  for (const Codec codec : kCodecs) {
    if (all || codec == named) with_codec(codec, try_codec);
  }
  return candidates;
}

// Bytes of a row, with the entry that says where it is, if it is not in a slot.
double in_memory(const Candidate& of) {
  const bool has_entry = of.profile.codec != Codec::kRaw && of.profile.slot_bytes == 0;
  return of.stored_per_row + (has_entry ? sizeof(uint64_t) : 0);
}

// Fewer lines, then less memory, then fewer bytes; a codec has to be better than raw rows in one of the first two.
bool is_better(const Candidate& a, const Candidate& b) {
  if (std::abs(a.lines_per_row - b.lines_per_row) > 1e-9) return a.lines_per_row < b.lines_per_row;
  if (std::abs(in_memory(a) - in_memory(b)) > 1e-9) return in_memory(a) < in_memory(b);
  if (a.profile.codec == Codec::kRaw || b.profile.codec == Codec::kRaw) return a.profile.codec == Codec::kRaw;
  return a.bytes_per_row < b.bytes_per_row;
}

std::string explain(const Fit& fit, uint32_t row_bytes) {
  if (fit.candidates.size() == 1) {  // the codec that was asked for
    const Candidate& only = fit.candidates[0];
    return base::format("{}: {:.2f} 128-byte lines and {:.1f} bytes per row of {} bytes on {} sampled rows",
                        name_of(only.profile.codec), only.lines_per_row, only.bytes_per_row, row_bytes,
                        fit.sample_rows);
  }
  std::string text =
      base::format("{}: fewest 128-byte lines, then least memory, per row of {} bytes on {} sampled rows (",
                   name_of(fit.profile.codec), row_bytes, fit.sample_rows);
  for (std::size_t i = 0; i < fit.candidates.size(); ++i) {
    const Candidate& candidate = fit.candidates[i];
    text += base::format("{}{} {:.2f} lines, {:.1f} bytes", i ? "; " : "", name_of(candidate.profile.codec),
                         candidate.lines_per_row, in_memory(candidate));
  }
  return text + ")";
}

void check_options(const FitOptions& options) {
  if (!(options.sample > 0 && options.sample <= 1)) {
    throw Error({"fit: sample", "a share in (0, 1]", base::format("{}", options.sample), ""});
  }
  if (options.min_sample < 1)
    throw Error({"fit: min_sample", "at least 1", base::format("{}", options.min_sample), ""});
  if (options.chunk_bytes != 4 && options.chunk_bytes != 8) {
    throw Error({"fit: chunk_bytes", "4 or 8", base::format("{}", options.chunk_bytes), ""});
  }
  if (options.mantissa_bits > 22) {
    throw Error({"fit: mantissa_bits", "0 to 22", base::format("{}", options.mantissa_bits), ""});
  }
  if (options.threshold_percent != 0 && (options.threshold_percent <= 50 || options.threshold_percent > 100)) {
    throw Error({"fit: threshold", "51 to 100 percent, or none for the sweep",
                 base::format("{}", options.threshold_percent), ""});
  }
}

}  // namespace

std::vector<int64_t> sample_rows(int64_t num_rows, const FitOptions& options) {
  check_options(options);
  const auto wanted = static_cast<int64_t>(std::ceil(options.sample * static_cast<double>(num_rows)));
  const int64_t count = std::min(num_rows, std::max(wanted, options.min_sample));
  std::vector<int64_t> rows(static_cast<std::size_t>(count));
  const base::PhiloxKey key = base::key_of(options.seed);
  for (int64_t i = 0; i < count; ++i) {
    const auto first = static_cast<int64_t>(static_cast<__int128_t>(num_rows) * i / count);
    const auto last = static_cast<int64_t>(static_cast<__int128_t>(num_rows) * (i + 1) / count);
    const auto width = static_cast<uint64_t>(last - first);
    rows[static_cast<std::size_t>(i)] = first + static_cast<int64_t>(base::random_below(width, key, uint64_t(i), 0));
  }
  return rows;
}

Profile blank_profile(const RowTable& rows) {
  Profile profile;
  profile.dtype = rows.dtype;
  profile.num_columns = rows.num_columns;
  return profile;
}

std::vector<uint32_t> coded_lengths(const RowTable& rows, const Profile& profile) {
  const ProfileTables tables(profile);
  std::vector<uint32_t> lengths(static_cast<std::size_t>(rows.num_rows));
  encode_each(tables.ref(), rows,
              [&](int64_t row, uint32_t bytes, const std::byte*) { lengths[static_cast<std::size_t>(row)] = bytes; });
  return lengths;
}

uint64_t total_bytes(const std::vector<uint32_t>& lengths, uint32_t row_bytes) {
  uint64_t total = 0;
  for (const uint32_t length : lengths) total += length ? length : round_up(row_bytes, 4);
  return total;
}

Fit fit(const RowTable& rows, const FitOptions& options) {
  check_table(rows, "fit");
  if (rows.num_rows == 0)
    throw Error({"fit: rows", "at least one row", "a table without rows", "a profile is learnt from rows"});
  const std::vector<int64_t> picked = sample_rows(rows.num_rows, options);
  std::vector<std::byte> kept(picked.size() * rows.row_bytes());
  for (std::size_t i = 0; i < picked.size(); ++i) {
    std::memcpy(kept.data() + i * rows.row_bytes(), rows.row(picked[i]), rows.row_bytes());
  }
  const RowTable sample{kept.data(), static_cast<int64_t>(picked.size()), rows.dtype, rows.num_columns};
  Fit result;
  result.sample_rows = sample.num_rows;
  result.candidates = measure_codecs(sample, options);
  result.profile = std::min_element(result.candidates.begin(), result.candidates.end(), is_better)->profile;
  result.why = explain(result, rows.row_bytes());
  return result;
}

double mean_row_bytes(const RowTable& rows, const Profile& profile) {
  check_table_fits(rows, profile, "mean_row_bytes");
  if (rows.num_rows == 0) throw Error({"mean_row_bytes: rows", "at least one row", "a table without rows", ""});
  const std::vector<uint32_t> lengths = coded_lengths(rows, profile);
  uint64_t bytes = total_bytes(lengths, rows.row_bytes());
  if (profile.codec == Codec::kPlanes) {
    const auto coded = static_cast<uint64_t>(rows.num_rows - std::count(lengths.begin(), lengths.end(), 0u));
    bytes += coded * ProfileTables(profile).ref().plane_b_bytes();
  }
  return static_cast<double>(bytes) / static_cast<double>(rows.num_rows);
}

}  // namespace cohort::ibp
