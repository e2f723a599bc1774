#include "cache/host_features.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/bits.h"
#include "base/check.h"
#include "base/parallel_copy.h"
#include "cache/row_subset.h"

namespace cohort::cache {
namespace {

constexpr int64_t kRegionAlign = 128;

int64_t stride_of(const FeatureRows& rows) { return base::round_up(rows.row_bytes, 4); }

}  // namespace

int64_t HostFeatures::bytes_of(const FeatureRows& rows, bool coded) {
  if (!coded) return rows.shape.num_rows * stride_of(rows);
  const ibp::EncodedRef& ref = rows.encoded->encoded().ref;
  return base::round_up(ref.data_bytes, kRegionAlign) + base::round_up(ref.plane_b_bytes(), kRegionAlign) +
         ref.overflow_bytes;
}

HostFeatures::HostFeatures(const FeatureRows& rows, bool coded) : coded_(coded), num_rows_(rows.shape.num_rows) {
  base::require(coded ? rows.encoded != nullptr : rows.raw || rows.encoded || rows.row_bytes == 0, "rows to copy");
  memory_ = base::HostTable(static_cast<std::size_t>(bytes_of(rows, coded)));
  if (coded) {
    copy_coded(*rows.encoded);
  } else {
    stride_bytes_ = stride_of(rows);
    copy_raw(rows);
  }
}

HostFeatures::HostFeatures(const FarRows& all, const RowBits& in_memory)
    : coded_(true), is_part_(true), num_rows_(in_memory.num_chosen()) {
  const RowSubset rows(all.encoded(), in_memory);
  memory_ = base::HostTable(static_cast<std::size_t>(rows.bytes()));
  encoded_ = rows.copy_to(memory_.data(), [&] { all.release_pages(); });
}

uint32_t HostFeatures::step_bytes() const {
  if (!coded_) return static_cast<uint32_t>(std::gcd(stride_bytes_, int64_t{ibp::kLineBytes}));
  return ibp::step_of(encoded_.ref);
}

FeatureRows HostFeatures::in_place_of(FeatureRows rows) const {
  if (is_part_) {
    rows.raw = nullptr;  // all of them are in the file of encoded rows
  } else if (coded_) {
    rows.encoded = std::make_shared<const HostRows>(encoded_);
    rows.raw = nullptr;  // in a file that may have to be read
  } else if (stride_bytes_ == rows.row_bytes) {
    rows.raw = data();
  }
  return rows;
}

void HostFeatures::copy_coded(const HostRows& rows) {
  encoded_ = rows.encoded();  // its keepers keep the directory
  ibp::EncodedRef& ref = encoded_.ref;
  const auto data_bytes = static_cast<std::size_t>(ref.data_bytes);
  base::parallel_copy(memory_.data(), ref.data, data_bytes);
  ref.data = memory_.data();
  std::byte* plane_b = memory_.data() + base::round_up(ref.data_bytes, kRegionAlign);
  if (ref.plane_b) {
    base::parallel_copy(plane_b, ref.plane_b, static_cast<std::size_t>(ref.plane_b_bytes()));
    ref.plane_b = plane_b;
  }
  if (ref.overflow_bytes == 0) return;
  std::byte* overflow = plane_b + base::round_up(ref.plane_b_bytes(), kRegionAlign);
  base::parallel_copy(overflow, ref.overflow, static_cast<std::size_t>(ref.overflow_bytes));
  ref.overflow = overflow;
}

void HostFeatures::copy_raw(const FeatureRows& rows) {
  if (memory_.bytes() == 0) return;  // no features, or none that are fetched
  if (stride_bytes_ == rows.row_bytes) {
    if (!rows.raw) return rows.encoded->decode(memory_.data());
    return base::parallel_copy(memory_.data(), rows.raw, memory_.bytes());
  }
  constexpr int64_t kChunkRows = 1 << 16;
  const auto row_bytes = static_cast<std::size_t>(rows.row_bytes);
  std::vector<int64_t> ids(kChunkRows);
  std::vector<std::byte> decoded(rows.raw ? 0 : ids.size() * row_bytes);
  for (int64_t first = 0; first < num_rows_; first += kChunkRows) {
    const int64_t count = std::min(kChunkRows, num_rows_ - first);
    const std::byte* from = rows.raw ? rows.raw + first * rows.row_bytes : decoded.data();
    if (!rows.raw) {
      std::iota(ids.begin(), ids.end(), first);
      rows.encoded->fetch(std::span(ids).first(static_cast<std::size_t>(count)), decoded.data());
    }
#pragma omp parallel for
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(memory_.data() + (first + i) * stride_bytes_, from + i * rows.row_bytes, row_bytes);
    }
  }
}

}  // namespace cohort::cache
