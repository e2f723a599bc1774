#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "ibp/batch_encoder.h"
#include "ibp/bits.h"
#include "ibp/packing.h"
#include "ibp/table_check.h"

namespace cohort::ibp {
namespace {

using base::Error;

// Packed bytes of a row at worst: the placement rule wastes at most half of a row's own length.
uint64_t packed_row_bound(uint32_t row_bytes) {
  const uint64_t bytes = round_up(row_bytes, 4);
  return bytes + std::min<uint64_t>(bytes, kPackLine) / 2;
}

// One group of rows, encoded and placed by one thread.
struct Group {
  std::vector<std::byte> bytes;   // whole lines
  std::vector<uint64_t> entries;  // offsets within the group
  uint32_t max_coded_bytes = 0;
};

void encode_group(const ProfileRef& profile, const RowTable& rows, int64_t first, std::byte* scratch, Group& group) {
  const int64_t last = std::min<int64_t>(first + kGroupRows, rows.num_rows);
  group.bytes.assign(round_up_to_line(packed_row_bound(profile.row_bytes) * kGroupRows), std::byte{0});
  group.entries.clear();
  uint32_t end = 0;
  for (int64_t row = first; row < last; ++row) {
    const uint32_t coded = encode_row(profile, rows.row(row), scratch);
    const auto bytes = coded ? coded : static_cast<uint32_t>(round_up(profile.row_bytes, 4));
    const uint32_t offset = place_in_group(end, bytes);
    std::memcpy(group.bytes.data() + offset, coded ? scratch : rows.row(row), coded ? coded : profile.row_bytes);
    group.entries.push_back(make_entry(offset, bytes, coded == 0));
    group.max_coded_bytes = std::max(group.max_coded_bytes, coded);
    end = offset + bytes;
  }
  group.bytes.resize(round_up_to_line(end));
}

// Memory that the kernel fills with zeros when it is first touched; what is not touched costs nothing.
std::shared_ptr<void> map_bytes(uint64_t bytes) {
  const std::size_t length = std::max<std::size_t>(round_up(bytes, 4096), 4096);
  void* data = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) base::fail_errno("encode: host memory", base::format_bytes(double(bytes)), errno);
  return {data, [length](void* address) { munmap(address, length); }};
}

int64_t batch_rows(uint32_t row_bytes) {
  constexpr int64_t kBatchBytes = int64_t{32} << 20;
  return std::max<int64_t>(kBatchBytes / row_bytes / kGroupRows, 1) * kGroupRows;
}

}  // namespace

ChosenLayout choose_layout(const Profile& profile, const EncodeOptions& options) {
  const bool slots = options.layout == LayoutChoice::kSlots ||
                     (options.layout == LayoutChoice::kAuto && (options.slot_bytes || profile.slot_bytes));
  if (!slots || profile.codec == Codec::kRaw) return {};  // raw rows are all of one length: packed is as good
  const auto whole = static_cast<uint32_t>(round_up(profile.row_bytes(), 16));
  uint32_t slot_bytes = options.slot_bytes ? options.slot_bytes : profile.slot_bytes;
  if (slot_bytes == 0) slot_bytes = whole;
  if (slot_bytes % 16 != 0 || slot_bytes > whole) {
    throw Error({"encode: slot_bytes", fmt::format("a multiple of 16 up to {}", whole), fmt::format("{}", slot_bytes),
                 "leave it out to take the profile's"});
  }
  return {Layout::kSlots, slot_bytes};
}

void Directory::add_slot(bool overflows, const std::byte* row, uint32_t row_bytes) {
  if (num_rows % 32 == 0) {
    flags.push_back(0);
    ranks.push_back(num_overflow);
  }
  if (overflows) {
    flags.back() |= 1u << (num_rows % 32);
    overflow.insert(overflow.end(), row, row + row_bytes);
    overflow.resize(round_up(overflow.size(), 16));
    ++num_overflow;
  }
  ++num_rows;
}

BatchEncoder::BatchEncoder(const Profile& profile, const EncodeOptions& options)
    : profile_((validate(profile), profile)), tables_(profile_), chosen_(choose_layout(profile, options)) {}

uint64_t BatchEncoder::batch_bound(int64_t num_rows) const {
  if (chosen_.layout == Layout::kSlots) return static_cast<uint64_t>(num_rows) * chosen_.slot_bytes;
  const auto groups = static_cast<uint64_t>((num_rows + kGroupRows - 1) / kGroupRows);
  return groups * round_up_to_line(packed_row_bound(profile_.row_bytes()) * kGroupRows);
}

uint64_t BatchEncoder::encode(const RowTable& rows, std::byte* out) {
  check_table_fits(rows, profile_, "encode");
  const uint64_t bytes = chosen_.layout == Layout::kSlots ? encode_slots(rows, out) : encode_packed(rows, out);
  directory_.data_bytes += bytes;
  return bytes;
}

uint64_t BatchEncoder::encode_packed(const RowTable& rows, std::byte* out) {
  const ProfileRef& profile = tables_.ref();
  const int64_t num_groups = (rows.num_rows + kGroupRows - 1) / kGroupRows;
  std::vector<Group> groups(static_cast<std::size_t>(num_groups));
#pragma omp parallel if (worth_threads(rows.num_rows * int64_t{rows.row_bytes()}))
  {
    std::vector<std::byte> scratch(encode_room(profile));
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < num_groups; ++i) {
      encode_group(profile, rows, i * kGroupRows, scratch.data(), groups[static_cast<std::size_t>(i)]);
    }
  }
  uint64_t used = 0;
  for (const Group& group : groups) {
    std::memcpy(out + used, group.bytes.data(), group.bytes.size());
    const uint64_t base = directory_.data_bytes + used;
    for (const uint64_t entry : group.entries) directory_.entries.push_back(entry + base / 4);
    directory_.max_coded_bytes = std::max(directory_.max_coded_bytes, group.max_coded_bytes);
    used += group.bytes.size();
  }
  directory_.num_rows += rows.num_rows;
  return used;
}

uint64_t BatchEncoder::encode_slots(const RowTable& rows, std::byte* out) {
  const ProfileRef& profile = tables_.ref();
  const uint32_t slot_bytes = chosen_.slot_bytes;
  std::vector<uint8_t> overflows(static_cast<std::size_t>(rows.num_rows));
#pragma omp parallel if (worth_threads(rows.num_rows * int64_t{rows.row_bytes()}))
  {
    std::vector<std::byte> scratch(encode_room(profile));
#pragma omp for schedule(static)
    for (int64_t row = 0; row < rows.num_rows; ++row) {
      const uint32_t coded = encode_row(profile, rows.row(row), scratch.data());
      const bool fits = coded && coded <= slot_bytes;
      std::byte* slot = out + row * int64_t{slot_bytes};
      if (fits) std::memcpy(slot, scratch.data(), coded);
      std::memset(slot + (fits ? coded : 0), 0, slot_bytes - (fits ? coded : 0));
      overflows[static_cast<std::size_t>(row)] = !fits;
    }
  }
  for (int64_t row = 0; row < rows.num_rows; ++row) {
    directory_.add_slot(overflows[static_cast<std::size_t>(row)], rows.row(row), profile.row_bytes);
  }
  directory_.max_coded_bytes = slot_bytes;
  return static_cast<uint64_t>(rows.num_rows) * slot_bytes;
}

EncodedRef BatchEncoder::ref(const std::byte* data) const {
  EncodedRef ref;
  ref.data = data;
  ref.overflow = directory_.overflow.data();
  ref.entries = directory_.entries.data();
  ref.flags = directory_.flags.data();
  ref.ranks = directory_.ranks.data();
  ref.num_rows = directory_.num_rows;
  ref.data_bytes = static_cast<int64_t>(directory_.data_bytes);
  ref.overflow_bytes = static_cast<int64_t>(directory_.overflow.size());
  ref.row_bytes = profile_.row_bytes();
  ref.stride_bytes = chosen_.slot_bytes;
  ref.overflow_stride_bytes = static_cast<uint32_t>(round_up(ref.row_bytes, 16));
  ref.max_coded_bytes = directory_.max_coded_bytes;
  ref.layout = chosen_.layout;
  return ref;
}

EncodedRows encode(const RowTable& rows, const Profile& profile, const EncodeOptions& options) {
  auto encoder = std::make_shared<BatchEncoder>(profile, options);
  check_table_fits(rows, profile, "encode");
  const Keeper memory = map_bytes(encoder->batch_bound(rows.num_rows));
  auto* data = static_cast<std::byte*>(memory.get());
  const int64_t step = batch_rows(rows.row_bytes());
  for (int64_t first = 0; first < rows.num_rows; first += step) {
    const RowTable batch{rows.row(first), std::min(step, rows.num_rows - first), rows.dtype, rows.num_columns};
    encoder->encode(batch, data + encoder->directory().data_bytes);
  }
  return {profile, encoder->ref(data), {memory, encoder}};
}

EncodedRows encode_in_place(const RowTable& rows, const Profile& profile) {
  check_table_fits(rows, profile, "encode_in_place");
  if (rows.row_bytes() % 4 != 0) {
    throw Error({"encode_in_place: row width", "a multiple of 4 bytes", fmt::format("{} bytes", rows.row_bytes()),
                 "use encode(), which packs"});
  }
  const ProfileTables tables(profile);
  auto lengths = std::make_shared<std::vector<uint16_t>>(static_cast<std::size_t>(rows.num_rows));
  uint32_t longest = 0;
#pragma omp parallel reduction(max : longest) if (worth_threads(rows.num_rows * int64_t{rows.row_bytes()}))
  {
    std::vector<std::byte> scratch(encode_room(tables.ref()));
#pragma omp for schedule(static)
    for (int64_t row = 0; row < rows.num_rows; ++row) {
      const uint32_t coded = encode_row(tables.ref(), rows.row(row), scratch.data());
      (*lengths)[static_cast<std::size_t>(row)] = static_cast<uint16_t>(coded / 4);
      if (coded == 0) continue;
      auto* out = const_cast<std::byte*>(rows.row(row));
      std::memcpy(out, scratch.data(), coded);
      std::memset(out + coded, 0, rows.row_bytes() - coded);
      longest = std::max(longest, coded);
    }
  }
  EncodedRef ref;
  ref.data = static_cast<const std::byte*>(rows.data);
  ref.lengths = lengths->data();
  ref.num_rows = rows.num_rows;
  ref.data_bytes = rows.num_rows * int64_t{rows.row_bytes()};
  ref.row_bytes = ref.stride_bytes = rows.row_bytes();
  ref.max_coded_bytes = longest;
  ref.layout = Layout::kInPlace;
  return {profile, ref, {lengths}};
}

int64_t data_bound(const Profile& profile, int64_t num_rows, const EncodeOptions& options) {
  if (num_rows < 0) throw Error({"bound: num_rows", "0 or more", fmt::format("{}", num_rows), ""});
  return static_cast<int64_t>(BatchEncoder(profile, options).batch_bound(num_rows));
}

int64_t bound(const Profile& profile, int64_t num_rows, const EncodeOptions& options) {
  const int64_t bytes = data_bound(profile, num_rows, options);
  if (choose_layout(profile, options).layout == Layout::kPacked) return bytes + num_rows * 8;
  return bytes + num_rows * static_cast<int64_t>(round_up(profile.row_bytes(), 16)) + (num_rows + 31) / 32 * 8;
}

}  // namespace cohort::ibp
