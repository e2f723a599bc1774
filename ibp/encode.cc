#include <omp.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/format.h"
#include "base/mapping.h"
#include "ibp/batch_encoder.h"
#include "ibp/bits.h"
#include "ibp/packing.h"

namespace cohort::ibp {
namespace {

using base::Error;

// Packed bytes of a row at worst: the placement rule wastes at most half of a row's own length.
uint64_t packed_row_bound(uint32_t row_bytes) {
  const uint64_t bytes = round_up(row_bytes, 4);
  return bytes + std::min<uint64_t>(bytes, kPackLine) / 2;
}

// Room for a group, and for what an attempt at its last row may write beyond.
uint64_t group_room(const ProfileRef& profile) {
  return round_up_to_line(packed_row_bound(profile.row_bytes) * kGroupRows + encode_room(profile));
}

// Encodes a group of rows, one thread, to `out`; entries: uint64 [count], offsets within the group.
PackedGroup encode_group(const ProfileRef& profile, const RowTable& rows, int64_t first, std::byte* out,
                         uint64_t* entries) {
  const int64_t count = std::min<int64_t>(kGroupRows, rows.num_rows - first);
  PackedGroup group;
  uint32_t end = 0;
  const auto zero_from_end = [&](uint32_t to) {
    std::memset(out + end, 0, to - end);
    end = to;
  };
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t coded = encode_row(profile, rows.row(first + i), out + end);
    const auto bytes = coded ? coded : static_cast<uint32_t>(round_up(profile.row_bytes, 4));
    const uint32_t offset = place_in_group(end, bytes);
    if (coded && offset != end) std::memmove(out + offset, out + end, coded);
    zero_from_end(offset);
    if (!coded) std::memcpy(out + offset, rows.row(first + i), profile.row_bytes);
    end += coded ? coded : profile.row_bytes;
    zero_from_end(offset + bytes);
    entries[i] = make_entry(offset, bytes, coded == 0);
    group.max_coded_bytes = std::max(group.max_coded_bytes, coded);
  }
  zero_from_end(static_cast<uint32_t>(round_up_to_line(end)));
  group.bytes = end;
  return group;
}

// Plane B of a row into its place; zeros for a row in the overflow area: null.
void store_plane_b(const ProfileRef& profile, const std::byte* row, std::byte* to) {
  if (!row) {
    std::memset(to, 0, profile.plane_b_bytes());
    return;
  }
  thread_local std::vector<std::byte> scratch;
  scratch.resize(profile.plane_b_bytes() + 8);
  encode_plane_b(profile, row, scratch.data());
  std::memcpy(to, scratch.data(), profile.plane_b_bytes());
}

}  // namespace

EncodeOptions encode_options(const std::string& layout, uint32_t slot_bytes) {
  if (layout == "auto") return {LayoutChoice::kAuto, slot_bytes};
  if (layout == "packed") return {LayoutChoice::kPacked, 0};
  if (layout == "slots") return {LayoutChoice::kSlots, slot_bytes};
  throw Error({"encode: layout", "auto, packed or slots", layout, ""});
}

ChosenLayout choose_layout(const Profile& profile, const EncodeOptions& options) {
  if (profile.codec == Codec::kPlanes) {
    if (options.layout != LayoutChoice::kPacked && !options.slot_bytes) return {Layout::kSlots, profile.slot_bytes};
    throw Error({"encode: layout of codec planes", "slots as wide as the profile says",
                 "a layout or slot_bytes of your own", "leave both out"});
  }
  const bool slots = options.layout == LayoutChoice::kSlots ||
                     (options.layout == LayoutChoice::kAuto && (options.slot_bytes || profile.slot_bytes));
  if (!slots || profile.codec == Codec::kRaw) return {};  // raw rows are all of one length: packed is as good
  const auto whole = static_cast<uint32_t>(round_up(profile.row_bytes(), 16));
  uint32_t slot_bytes = options.slot_bytes ? options.slot_bytes : profile.slot_bytes;
  if (slot_bytes == 0) slot_bytes = whole;
  if (slot_bytes % 16 != 0 || slot_bytes > whole) {
    throw Error({"encode: slot_bytes", base::format("a multiple of 16 up to {}", whole), base::format("{}", slot_bytes),
                 "leave it out to take the profile's"});
  }
  return {Layout::kSlots, slot_bytes};
}

void Directory::add_slot(bool overflows) {
  if (num_rows % 32 == 0) {
    flags.push_back(0);
    ranks.push_back(num_overflow);
  }
  if (overflows) {
    flags.back() |= 1u << (num_rows % 32);
    ++num_overflow;
  }
  ++num_rows;
}

BatchEncoder::BatchEncoder(const Profile& profile, const EncodeOptions& options)
    : profile_((validate(profile), profile)), tables_(profile_), chosen_(choose_layout(profile, options)) {
  if (profile_.codec == Codec::kPlanes) plane_b_stride_ = tables_.ref().plane_b_bytes();
}

uint64_t BatchEncoder::batch_bound(int64_t num_rows) const {
  if (chosen_.layout == Layout::kSlots) return static_cast<uint64_t>(num_rows) * chosen_.slot_bytes;
  const auto groups = static_cast<uint64_t>((num_rows + kGroupRows - 1) / kGroupRows);
  return groups * round_up_to_line(packed_row_bound(profile_.row_bytes()) * kGroupRows);
}

uint64_t BatchEncoder::encode(const RowTable& rows, std::byte* out, std::byte* plane_b) {
  check_table_fits(rows, profile_, "encode");
  const bool slots = chosen_.layout == Layout::kSlots;
  const uint64_t bytes = slots ? encode_slots(rows, out, plane_b) : encode_packed(rows, out);
  directory_.data_bytes += bytes;
  return bytes;
}

// A few groups at a time are encoded to memory that stays in the caches, then moved to where they belong.
uint64_t BatchEncoder::encode_packed(const RowTable& rows, std::byte* out) {
  constexpr int64_t kThreadBytes = int64_t{1} << 19;
  const uint64_t room = group_room(tables_.ref());
  const int64_t step = std::max<int64_t>(kThreadBytes * omp_get_max_threads() / static_cast<int64_t>(room), 1);
  const int64_t num_groups = (rows.num_rows + kGroupRows - 1) / kGroupRows;
  groups_.resize(static_cast<std::size_t>(std::min(step, num_groups)));
  staging_.resize(groups_.size() * room);
  uint64_t used = 0;
  for (int64_t first = 0; first < num_groups; first += step) {
    const int64_t first_row = first * kGroupRows;
    const RowTable part{rows.row(first_row), std::min(step * kGroupRows, rows.num_rows - first_row), rows.dtype,
                        rows.num_columns};
    used += encode_staged(part, room, out + used, directory_.data_bytes + used);
  }
  return used;
}

// `rows` are at most as many as there is staging for; `before`: bytes of data before `out`.
uint64_t BatchEncoder::encode_staged(const RowTable& rows, uint64_t room, std::byte* out, uint64_t before) {
  const int64_t num_groups = (rows.num_rows + kGroupRows - 1) / kGroupRows;
  const std::size_t num_entries = directory_.entries.size();
  directory_.entries.resize(num_entries + static_cast<std::size_t>(rows.num_rows));
  uint64_t* entries = directory_.entries.data() + num_entries;
  const bool threads = worth_threads(rows.num_rows * int64_t{rows.row_bytes()});
#pragma omp parallel for schedule(dynamic) if (threads)
  for (int64_t i = 0; i < num_groups; ++i) {
    groups_[static_cast<std::size_t>(i)] =
        encode_group(tables_.ref(), rows, i * kGroupRows, staging_.data() + i * room, entries + i * kGroupRows);
  }
  uint64_t used = 0;
  for (int64_t i = 0; i < num_groups; ++i) {
    PackedGroup& group = groups_[static_cast<std::size_t>(i)];
    group.offset = used;
    used += group.bytes;
    directory_.max_coded_bytes = std::max(directory_.max_coded_bytes, group.max_coded_bytes);
  }
#pragma omp parallel for schedule(static) if (threads)
  for (int64_t i = 0; i < num_groups; ++i) {
    const PackedGroup& group = groups_[static_cast<std::size_t>(i)];
    std::memcpy(out + group.offset, staging_.data() + i * room, group.bytes);
    for (int64_t row = i * kGroupRows; row < std::min((i + 1) * int64_t{kGroupRows}, rows.num_rows); ++row) {
      entries[row] += (before + group.offset) / 4;
    }
  }
  directory_.num_rows += rows.num_rows;
  return used;
}

uint64_t BatchEncoder::encode_slots(const RowTable& rows, std::byte* out, std::byte* plane_b) {
  const uint32_t slot_bytes = chosen_.slot_bytes;
  std::vector<uint16_t> lengths(static_cast<std::size_t>(rows.num_rows));  // in words; 0: in the overflow area
  encode_each(tables_.ref(), rows, [&](int64_t row, uint32_t bytes, const std::byte* coded) {
    if (bytes > slot_bytes) bytes = 0;
    std::byte* slot = out + row * int64_t{slot_bytes};
    std::memcpy(slot, coded, bytes);
    std::memset(slot + bytes, 0, slot_bytes - bytes);
    lengths[static_cast<std::size_t>(row)] = static_cast<uint16_t>(bytes / 4);
    if (plane_b_stride_) store_plane_b(tables_.ref(), bytes ? rows.row(row) : nullptr, plane_b + row * plane_b_stride_);
  });
  uint32_t& longest = directory_.max_coded_bytes;
  if (slots_are_read_whole(profile_.codec)) longest = slot_bytes;
  for (int64_t row = 0; row < rows.num_rows; ++row) {
    const uint32_t words = lengths[static_cast<std::size_t>(row)];
    const bool overflows_here = words == 0;
    longest = std::max(longest, words * 4);
    directory_.add_slot(overflows_here);
    if (!overflows_here) continue;
    directory_.overflow.insert(directory_.overflow.end(), rows.row(row), rows.row(row) + rows.row_bytes());
    directory_.overflow.resize(round_up(directory_.overflow.size(), 16));
  }
  return static_cast<uint64_t>(rows.num_rows) * slot_bytes;
}

EncodedRef BatchEncoder::ref(const std::byte* data, const std::byte* plane_b) const {
  EncodedRef ref;
  ref.data = data;
  ref.plane_b = plane_b;
  ref.plane_b_stride_bytes = plane_b_stride_;
  ref.overflow = directory_.overflow.data();
  ref.entries = directory_.entries.data();
  ref.flags = directory_.flags.data();
  ref.ranks = directory_.ranks.data();
  ref.num_rows = directory_.num_rows;
  ref.data_bytes = static_cast<int64_t>(directory_.data_bytes);
  ref.row_bytes = profile_.row_bytes();
  ref.stride_bytes = chosen_.slot_bytes;
  ref.overflow_stride_bytes = static_cast<uint32_t>(round_up(ref.row_bytes, 16));
  ref.overflow_bytes = int64_t{directory_.num_overflow} * ref.overflow_stride_bytes;
  ref.max_coded_bytes = directory_.max_coded_bytes;
  ref.layout = chosen_.layout;
  return ref;
}

EncodedRows encode(const RowTable& rows, const Profile& profile, const EncodeOptions& options) {
  auto encoder = std::make_shared<BatchEncoder>(profile, options);
  check_table_fits(rows, profile, "encode");
  const uint64_t plane_b_at = round_up_to_line(encoder->batch_bound(rows.num_rows));
  const uint64_t plane_b_bytes = encoder->plane_b_bytes(rows.num_rows);
  const auto memory = std::make_shared<base::Mapping>(
      base::Mapping::zeros(std::max<std::size_t>(plane_b_at + plane_b_bytes, 1), "encode: host memory", ""));
  auto* data = memory->data();
  std::byte* plane_b = plane_b_bytes ? data + plane_b_at : nullptr;
  constexpr int64_t kBatchBytes = int64_t{32} << 20;
  const int64_t step = std::max<int64_t>(kBatchBytes / rows.row_bytes() / kGroupRows, 1) * kGroupRows;
  for (int64_t first = 0; first < rows.num_rows; first += step) {
    const RowTable batch{rows.row(first), std::min(step, rows.num_rows - first), rows.dtype, rows.num_columns};
    encoder->encode(batch, data + encoder->directory().data_bytes, plane_b + encoder->plane_b_bytes(first));
  }
  return {profile, encoder->ref(data, plane_b), {memory, encoder}};
}

EncodedRows encode_in_place(const RowTable& rows, const Profile& profile) {
  check_table_fits(rows, profile, "encode_in_place");
  if (rows.row_bytes() % 4 != 0) {
    throw Error({"encode_in_place: row width", "a multiple of 4 bytes", base::format("{} bytes", rows.row_bytes()),
                 "use encode(), which packs"});
  }
  if (profile.codec == Codec::kPlanes) {
    throw Error({"encode_in_place: codec", "a codec that stores each row in one piece", "planes", "use encode()"});
  }
  const ProfileTables tables(profile);
  auto lengths = std::make_shared<std::vector<uint16_t>>(static_cast<std::size_t>(rows.num_rows));
  encode_each(tables.ref(), rows, [&](int64_t row, uint32_t bytes, const std::byte* coded) {
    (*lengths)[static_cast<std::size_t>(row)] = static_cast<uint16_t>(bytes / 4);
    if (bytes == 0) return;
    auto* out = const_cast<std::byte*>(rows.row(row));
    std::memcpy(out, coded, bytes);
    std::memset(out + bytes, 0, rows.row_bytes() - bytes);
  });
  EncodedRef ref;
  ref.data = static_cast<const std::byte*>(rows.data);
  ref.lengths = lengths->data();
  ref.num_rows = rows.num_rows;
  ref.data_bytes = rows.num_rows * int64_t{rows.row_bytes()};
  ref.row_bytes = ref.stride_bytes = rows.row_bytes();
  for (const uint16_t length : *lengths) ref.max_coded_bytes = std::max(ref.max_coded_bytes, uint32_t{length} * 4);
  ref.layout = Layout::kInPlace;
  return {profile, ref, {lengths}};
}

int64_t data_bound(const Profile& profile, int64_t num_rows, const EncodeOptions& options) {
  const int64_t most = INT64_MAX / (4 * int64_t{profile.row_bytes()} + 1024);
  if (num_rows < 0 || num_rows > most) {
    throw Error({"bound: num_rows", base::format("0 to {}", most), base::format("{}", num_rows), ""});
  }
  const BatchEncoder encoder(profile, options);
  return static_cast<int64_t>(encoder.batch_bound(num_rows) + encoder.plane_b_bytes(num_rows));
}

int64_t bound(const Profile& profile, int64_t num_rows, const EncodeOptions& options) {
  const int64_t bytes = data_bound(profile, num_rows, options);
  if (choose_layout(profile, options).layout == Layout::kPacked) return bytes + num_rows * 8;
  return bytes + num_rows * static_cast<int64_t>(round_up(profile.row_bytes(), 16)) + (num_rows + 31) / 32 * 8;
}

}  // namespace cohort::ibp
