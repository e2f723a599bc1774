#include "cache/host_rows.h"

#include "base/check.h"
#include "base/format.h"
#include "ibp/host.h"

namespace cohort::cache {

HostRows HostRows::open(const std::filesystem::path& file, const RowShape& shape, bool verify_data) {
  const FileState state = state_of(file.string());
  auto pages = std::make_shared<base::Mapping>(base::Mapping::of(file.string()));
  HostRows rows(ibp::load({pages->data(), pages->bytes()}, pages, file.string(), verify_data));
  rows.file_ = file.string();
  rows.state_ = state;
  rows.pages_ = std::move(pages);
  const ibp::Profile& profile = rows.rows_.profile;
  const std::string dtype = ibp::name_of(profile.dtype);
  if (rows.num_rows() != shape.num_rows || profile.num_columns != shape.num_columns || dtype != shape.dtype) {
    throw base::Error({file.string(), base::format("{} rows of {} {}", shape.num_rows, shape.num_columns, shape.dtype),
                       base::format("{} rows of {} {}", rows.num_rows(), profile.num_columns, dtype),
                       "run cohort dataset prepare again"});
  }
  return rows;
}

int64_t HostRows::stored_bytes(std::span<const int64_t> ids, bool plane_a) const {
  constexpr std::size_t kFewRows = 256;  // not worth waking threads for
  int64_t bytes = 0;
#pragma omp parallel for schedule(static) reduction(+ : bytes) if (ids.size() > kFewRows)
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const ibp::RowSpan span = ibp::locate(rows_.ref, ids[i]);
    bytes += plane_a ? span.bytes : ibp::joined_bytes(rows_.ref, span);
  }
  return bytes;
}

int64_t HostRows::stored_bytes_of_any() const {
  const bool all_in_slots = rows_.ref.layout == ibp::Layout::kSlots && rows_.ref.overflow_bytes == 0;
  return all_in_slots ? rows_.ref.stride_bytes + rows_.ref.plane_b_stride_bytes : 0;
}

base::UninitializedVector<uint32_t> HostRows::stored_bytes_of_each() const {
  base::UninitializedVector<uint32_t> bytes(static_cast<std::size_t>(num_rows()));
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < num_rows(); ++row) {
    bytes[static_cast<std::size_t>(row)] = ibp::joined_bytes(rows_.ref, ibp::locate(rows_.ref, row));
  }
  return bytes;
}

void verify_rows(const std::string& file) { ibp::verify(file); }

}  // namespace cohort::cache
