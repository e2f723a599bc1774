#include "cache/slab_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/bits.h"
#include "base/check.h"

namespace cohort::cache {
namespace {

ibp::Dtype dtype_named(const std::string& name) {
  using ibp::Dtype;
  for (const Dtype dtype : {Dtype::kUint8, Dtype::kFloat16, Dtype::kBfloat16, Dtype::kFloat32}) {
    if (ibp::name_of(dtype) == name) return dtype;
  }
  return name == "int64" ? Dtype::kBits64 : Dtype::kBits32;
}

}  // namespace

void demand_row_of_gpu(int64_t row_bytes) {
  if (row_bytes <= int64_t{ibp::kMaxRowBytes}) return;
  throw base::Error({"feature rows", "at most 65536 bytes each on a GPU", std::to_string(row_bytes),
                     "use a smaller feature type or fewer columns, or --device cpu"});
}

SlabRows::SlabRows(FeatureRows rows, bool coded)
    : rows_(std::move(rows)), coded_(coded), profile_(ibp::raw_profile(rows_.row_bytes)) {
  demand_row_of_gpu(rows_.row_bytes);
  base::require(rows_.raw || rows_.encoded || rows_.row_bytes == 0, "raw or encoded rows");
  if (!coded_) return;
  if (rows_.encoded) {
    profile_ = rows_.encoded->encoded().profile;
    const ibp::EncodedRef& ref = rows_.encoded->encoded().ref;
    max_coded_bytes_ = ibp::longest_coded_bytes(ref) + ref.plane_b_stride_bytes;
    if (ref.layout == ibp::Layout::kPacked) align_bytes_ = 4;
    return;
  }
  const ibp::RowTable table{rows_.raw, rows_.shape.num_rows, dtype_named(rows_.shape.dtype),
                            static_cast<uint32_t>(rows_.shape.num_columns)};
  const ibp::Fit fit = ibp::fit(table);
  profile_ = fit.profile;
  max_coded_bytes_ = std::max(static_cast<uint32_t>(rows_.row_bytes), profile_.slot_bytes);
  if (profile_.slot_bytes == 0) align_bytes_ = 4;
  for (const ibp::Candidate& candidate : fit.candidates) {
    if (candidate.profile == profile_) mean_bytes_ = candidate.stored_per_row;
  }
}

SlabRows SlabRows::reading(FeatureRows rows) const {
  SlabRows same = *this;
  same.rows_ = std::move(rows);
  return same;
}

std::optional<SlabRows> SlabRows::as_encoded() const {
  return rows_.encoded ? std::optional(SlabRows(rows_, true)) : std::nullopt;
}

int64_t SlabRows::most_bytes() const {
  return base::round_up(std::max<int64_t>({rows_.row_bytes, max_coded_bytes_, 1}), align_bytes_);
}

RowSizes SlabRows::sizes() const {
  if (!coded_) return {base::round_up(rows_.row_bytes, align_bytes_), {}};
  if (!rows_.encoded) return {base::round_up(static_cast<int64_t>(std::ceil(mean_bytes_)), align_bytes_), {}};
  const ibp::EncodedRef& ref = rows_.encoded->encoded().ref;
  if (const int64_t bytes = rows_.encoded->stored_bytes_of_any()) return {bytes, {}};
  RowSizes sizes{0, base::UninitializedVector<uint32_t>(static_cast<std::size_t>(ref.num_rows))};
#pragma omp parallel for
  for (int64_t row = 0; row < ref.num_rows; ++row) {
    sizes.each[static_cast<std::size_t>(row)] =
        static_cast<uint32_t>(base::round_up(int64_t{ibp::joined_bytes(ref, ibp::locate(ref, row))}, align_bytes_));
  }
  return sizes;
}

std::span<const ibp::RowSpan> RowReader::read(std::span<const uint32_t> nodes) {
  const FeatureRows& rows = from_.rows_;
  const auto count = static_cast<int64_t>(nodes.size());
  const auto row_bytes = static_cast<uint32_t>(rows.row_bytes);
  spans_.resize(nodes.size());
  const ibp::EncodedRef* located = nullptr;  // where spans come from; none: raw rows
  const std::byte* raw = rows.raw;
  bool by_position = false;  // instead of by node
  if (from_.coded_ && rows.encoded) {
    located = &rows.encoded->encoded().ref;
  } else if (from_.coded_ || !raw) {
    copy_raw(nodes);
    raw = buffer_.data();
    by_position = true;
    if (from_.coded_) {
      chunk_ = ibp::encode({raw, count, from_.profile_.dtype, from_.profile_.num_columns}, from_.profile_);
      located = &chunk_.ref;
    }
  }
  const std::size_t joined_bytes =  // codec planes: a row in one piece
      located && located->plane_b ? located->stride_bytes + located->plane_b_stride_bytes : 0;
  if (joined_bytes) buffer_.resize(nodes.size() * joined_bytes);
#pragma omp parallel for
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const int64_t row = by_position ? i : int64_t{nodes[at]};
    spans_[at] = located ? ibp::locate(*located, row) : ibp::RowSpan{raw + row * rows.row_bytes, row_bytes, true, true};
    if (!spans_[at].plane_b) continue;
    std::byte* joined = buffer_.data() + at * joined_bytes;
    ibp::copy_joined(*located, spans_[at], joined);
    spans_[at] = {joined, static_cast<uint32_t>(joined_bytes), false, false};
  }
  return spans_;
}

void RowReader::copy_raw(std::span<const uint32_t> nodes) {
  const FeatureRows& rows = from_.rows_;
  const auto row_bytes = static_cast<std::size_t>(rows.row_bytes);
  buffer_.resize(nodes.size() * row_bytes);
  if (!rows.raw) {
    const std::vector<int64_t> ids(nodes.begin(), nodes.end());
    rows.encoded->fetch(ids, buffer_.data());
    return;
  }
#pragma omp parallel for
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    std::memcpy(buffer_.data() + i * row_bytes, rows.raw + nodes[i] * row_bytes, row_bytes);
  }
}

}  // namespace cohort::cache
