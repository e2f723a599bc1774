// Codec "sparse" on one row. FORMAT.md 4.4.
#include "ibp/bits.h"
#include "ibp/row_codec.h"
#include "ibp/sparse_header.h"

namespace cohort::ibp {
namespace {

// The non-zero elements of a row: their columns, ascending, and their bits.
struct NonZeros {
  std::vector<uint32_t> columns;
  std::vector<uint64_t> values;
};

template <typename Element>
void collect(const std::byte* row, uint32_t num_columns, NonZeros& found) {
  constexpr uint32_t kPerLoad = 8 / sizeof(Element);
  const auto take = [&](uint32_t column) {
    const auto element = load_as<Element>(row + std::size_t{column} * sizeof(Element));
    if (element == 0) return;
    found.columns.push_back(column);
    found.values.push_back(element);
  };
  uint32_t column = 0;
  for (; column + 4 * kPerLoad <= num_columns; column += 4 * kPerLoad) {
    const std::byte* from = row + std::size_t{column} * sizeof(Element);
    const uint64_t any = load_as<uint64_t>(from) | load_as<uint64_t>(from + 8) | load_as<uint64_t>(from + 16) |
                         load_as<uint64_t>(from + 24);
    if (any == 0) continue;
    for (uint32_t i = 0; i < 4 * kPerLoad; ++i) take(column + i);
  }
  for (; column < num_columns; ++column) take(column);
}

void collect_row(const ProfileRef& profile, const std::byte* row, NonZeros& found) {
  found.columns.clear();
  found.values.clear();
  switch (profile.element_bytes) {
    case 1:
      return collect<uint8_t>(row, profile.num_columns, found);
    case 2:
      return collect<uint16_t>(row, profile.num_columns, found);
    case 4:
      return collect<uint32_t>(row, profile.num_columns, found);
    default:
      return collect<uint64_t>(row, profile.num_columns, found);
  }
}

ValueKind value_kind(const ProfileRef& profile, const std::vector<uint64_t>& values) {
  bool all_constant = true, all_equal = true, all_narrow = profile.value_bits < profile.element_bytes * 8;
  for (const uint64_t value : values) {
    all_constant &= value == profile.constant;
    all_equal &= value == values[0];
    all_narrow = all_narrow && (value >> profile.value_bits) == profile.value_prefix;
  }
  return choose_value_kind(all_constant, all_equal, all_narrow);
}

uint32_t count_groups(const std::vector<uint32_t>& columns) {
  uint32_t groups = 0, previous = ~0u;
  for (const uint32_t column : columns) {
    groups += column / 32 != previous;
    previous = column / 32;
  }
  return groups;
}

void put_bitmap(const ProfileRef& profile, const std::vector<uint32_t>& columns, BitWriter& stream) {
  std::vector<uint32_t> groups((profile.num_columns + 31) / 32);
  for (const uint32_t column : columns) groups[column / 32] |= 1u << (column % 32);
  for (const uint32_t group : groups) stream.put(group != 0, 1);
  for (const uint32_t group : groups) {
    if (group) stream.put(group, 32);
  }
}

// Writes one element where it belongs in a row that is zero elsewhere.
void store_element(const ProfileRef& profile, std::byte* row, uint32_t column, uint64_t value) {
  std::memcpy(row + std::size_t{column} * profile.element_bytes, &value, profile.element_bytes);
}

// The columns of a row, from its list or bitmap; false when they are not ascending, in range and as many as said.
bool read_columns(const ProfileRef& profile, const std::byte* in, const SparseRow& layout,
                  std::vector<uint32_t>& columns) {
  columns.clear();
  if (!layout.bitmap) {
    for (uint32_t i = 0; i < layout.num_nonzeros; ++i) {
      const uint32_t column = read_bits(in, layout.index_bit + uint64_t{i} * profile.index_bits, profile.index_bits);
      if (column >= profile.num_columns || (i && column <= columns.back())) return false;
      columns.push_back(column);
    }
    return true;
  }
  uint64_t bit = layout.group_bit;
  for (uint32_t group = 0; group < layout.num_groups; ++group) {
    if (read_bits(in, layout.index_bit + group, 1) == 0) continue;
    uint32_t word = read_bits(in, bit, 32);
    bit += 32;
    for (; word; word &= word - 1) columns.push_back(group * 32 + static_cast<uint32_t>(std::countr_zero(word)));
  }
  return columns.size() == layout.num_nonzeros && (columns.empty() || columns.back() < profile.num_columns);
}

}  // namespace

uint32_t encode_sparse(const ProfileRef& profile, const std::byte* row, std::byte* out) {
  thread_local NonZeros found;
  collect_row(profile, row, found);
  const auto count = static_cast<uint32_t>(found.columns.size());
  const ValueKind kind = value_kind(profile, found.values);
  const bool bitmap = bitmap_is_shorter(profile, count, count_groups(found.columns));
  const uint32_t width = value_width(profile, kind);
  if (sparse_bits(profile, kind, count, bitmap, count_groups(found.columns)) / 8 >= profile.row_bytes) {
    return profile.row_bytes;  // would not shrink, and might not fit `out`
  }
  store_as(out, make_sparse_header(count, kind, bitmap));
  BitWriter stream(out + 4);
  if (kind == ValueKind::kRowConstant) stream.put(found.values[0], profile.element_bytes * 8);
  if (bitmap) {
    put_bitmap(profile, found.columns, stream);
  } else {
    for (const uint32_t column : found.columns) stream.put(column, profile.index_bits);
  }
  if (width) {
    for (const uint64_t value : found.values) stream.put(value & low_bits(width), width);
  }
  return 4 + stream.finish();
}

uint32_t decode_sparse(const ProfileRef& profile, const std::byte* in, uint32_t bytes, std::byte* row) {
  if (bytes < 4) return 0;
  SparseRow layout;
  if (!read_sparse_header(profile, load_as<uint32_t>(in), layout)) return 0;
  const uint64_t end_bit = uint64_t{bytes} * 8;
  if (layout.group_bit > end_bit) return 0;
  uint32_t groups = 0;
  for (uint32_t i = 0; layout.bitmap && i < layout.num_groups; ++i) groups += read_bits(in, layout.index_bit + i, 1);
  place_values(profile, layout, groups);
  if (layout.end_bit > end_bit) return 0;
  thread_local std::vector<uint32_t> columns;
  if (!read_columns(profile, in, layout, columns)) return 0;
  std::memset(row, 0, profile.row_bytes);
  uint64_t value = profile.constant;
  if (layout.kind == ValueKind::kRowConstant) value = read_bits_wide(in, kSparseHeaderBits, profile.element_bytes * 8);
  const uint32_t width = value_width(profile, layout.kind);
  const uint64_t prefix = layout.kind == ValueKind::kNarrow ? profile.value_prefix << width : 0;
  for (uint32_t i = 0; i < layout.num_nonzeros; ++i) {
    if (width) value = prefix | read_bits_wide(in, layout.value_bit + uint64_t{i} * width, width);
    store_element(profile, row, columns[i], value);
  }
  return static_cast<uint32_t>(round_up(layout.end_bit, 32) / 8);
}

}  // namespace cohort::ibp
