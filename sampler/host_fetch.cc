#include "sampler/host_fetch.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/process.h"
#include "sampler/host_batch.h"

namespace cohort::sampler {
namespace {

// out[i] = row ids[i], of coded rows in planes perhaps by plane A alone, and what was read for them.
void gather_rows(const cache::FeatureRows& rows, std::span<const int64_t> ids, std::byte* out, base::TierUse& use,
                 bool plane_a) {
  if (rows.row_bytes == 0) return;
  use.rows += std::ssize(ids);
  if (rows.encoded) {
    rows.encoded->fetch(ids, out, plane_a);
    use.bytes += rows.encoded->stored_bytes(ids, plane_a);
    return;
  }
  const int64_t bytes = rows.row_bytes;
  use.bytes += bytes * std::ssize(ids);
#pragma omp parallel for schedule(static) if (ids.size() > std::size_t{kFewItems})
  for (std::size_t i = 0; i < ids.size(); ++i) {
    std::memcpy(out + static_cast<int64_t>(i) * bytes, rows.raw + ids[i] * bytes, static_cast<std::size_t>(bytes));
  }
}

}  // namespace

void HostFetch::add_rows(const cache::FeatureRows& rows, std::span<const int64_t> ids, std::byte* out, bool plane_a) {
  gather_rows(rows, ids, out, use_.rows[cache::kHostTier], plane_a);
}

void HostFetch::add_rows(const cache::TieredRows& rows, std::span<const int64_t> ids, std::byte* out, bool plane_a) {
  cache::TieredFetch fetch = rows.fetch(ids, out, plane_a);
  use_.rows[cache::kHostTier].rows += fetch.host.rows;
  use_.rows[cache::kHostTier].bytes += fetch.host.bytes;
  far_.push_back(std::move(fetch.far));
}

void HostFetch::add_edge_rows(const cache::FeatureRows& rows, std::span<const int64_t> ids, std::byte* out) {
  const int64_t edges_us = base::monotonic_us();
  gather_rows(rows, ids, out, use_.edge_rows, false);
  use_.edge_rows.us += since(edges_us).us();
}

void HostFetch::count_in_place(int64_t num_rows, int64_t row_bytes) {
  use_.rows[cache::kHostTier].rows += num_rows;
  use_.rows[cache::kHostTier].bytes += num_rows * row_bytes;
}

void HostFetch::end_of_host(bool has_rows) {
  use_.time = since(start_us_);
  use_.rows[cache::kHostTier].us = has_rows ? use_.time.us() : 0;
}

bool HostFetch::done() const {
  return std::ranges::all_of(far_, [](const cache::FarFetch& fetch) { return fetch.done(); });
}

FetchUse HostFetch::finish() {
  cache::FarUse far;
  for (cache::FarFetch& fetch : far_) far += fetch.finish();
  if (far.rows() == 0) return use_;
  use_.time = since(start_us_);
  for (std::size_t tier = 0; tier < far.tiers.size(); ++tier) {
    if (far.tiers[tier].rows == 0) continue;
    use_.rows[tier] = far.tiers[tier];
    use_.rows[tier].us = use_.time.us();
  }
  return use_;
}

}  // namespace cohort::sampler
