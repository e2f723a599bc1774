#include "cache/sm_share.h"

#include <algorithm>
#include <numeric>

namespace cohort::cache {
namespace {

constexpr double kSmBytesPerSecond = 12e9;  // decoded, by one SM: a careful guess, for the first batch alone
// A tier within so much of its link's time is bound by the link: its SMs waited, and cost less than they seem to. How
// much less shows when they are fewer, so each such batch takes them for cheaper, until it is not bound by the link any
// more.
constexpr double kLinkBound = 1.07, kLess = 0.9;
constexpr int kBatchesToRemember = 32;  // that so many SMs were too few
// Rows that straddle lines never see the rate of their link: from so much of it on, the best rate that was seen counts.
constexpr double kNearLink = 0.7;
constexpr double kForget = 1.001;           // a batch: what was seen need not be seen again
constexpr int64_t kRowsToLearnFrom = 4096;  // of fewer rows most of the time is the launch's

double seconds(const TierLoad& load, int sms) {
  return std::max(load.least_seconds, load.rows * load.sm_seconds_a_row / sms);
}

}  // namespace

std::array<int, kNumLinks> share_sms(int num_sms, const std::array<TierLoad, kNumLinks>& loads) {
  std::array<int, kNumLinks> sms;
  std::ranges::transform(loads, sms.begin(), [](const TierLoad& load) { return load.present ? 1 : 0; });
  const auto need = [&](std::size_t tier) { return loads[tier].present ? seconds(loads[tier], sms[tier]) : 0; };
  for (int used = std::accumulate(sms.begin(), sms.end(), 0); used > 0 && used < num_sms; ++used) {
    std::size_t slowest = kHostTier;
    for (std::size_t tier = 0; tier < loads.size(); ++tier) {
      if (need(tier) > need(slowest)) slowest = tier;
    }
    if (!loads[slowest].present || seconds(loads[slowest], sms[slowest]) <= loads[slowest].least_seconds)
      break;  // its link is the limit
    ++sms[slowest];
  }
  return sms;
}

SmShare::SmShare(int num_sms, int64_t row_bytes, double host_bytes_per_second,
                 const std::array<bool, kNumLinks>& present)
    : num_sms_(num_sms), host_bytes_per_second_(host_bytes_per_second) {
  for (std::size_t tier = 0; tier < loads_.size(); ++tier) {
    loads_[tier] = {1, static_cast<double>(row_bytes) / kSmBytesPerSecond, 0, present[tier]};
  }
}

// The least time of so many bytes from the host, which took `seconds`.
double SmShare::link_seconds(double bytes, double seconds) {
  const double nominal = bytes / host_bytes_per_second_;
  if (nominal < kNearLink * seconds) return nominal;
  const double seen = seconds / bytes, before = kForget * best_seconds_a_byte_;
  best_seconds_a_byte_ = before == 0 ? seen : std::min(seen, before);
  return std::max(nominal, bytes * best_seconds_a_byte_);
}

// What a host row costs an SM, of a batch whose rows took so many SMs so long.
double SmShare::host_cost(double measured, int sms, bool link_bound) {
  const TierLoad& load = loads_[kHostTier];
  ++batches_since_;
  if (!link_bound) {
    if (sms < enough_) {
      too_few_ = sms;
      batches_since_ = 0;
    }
    return measured;
  }
  enough_ = sms;
  const double less = kLess * std::min(load.sm_seconds_a_row, measured);
  if (too_few_ == 0 || batches_since_ > kBatchesToRemember) return less;
  return std::max(less, 1.01 * load.least_seconds * too_few_ / load.rows);  // one more than those is asked for
}

void SmShare::learn(const TierUses& uses, const std::array<int, kNumLinks>& sms) {
  for (std::size_t tier = 0; tier < loads_.size(); ++tier) {
    TierLoad& load = loads_[tier];
    const TierUse& use = uses[tier];
    load.rows = static_cast<double>(use.rows);
    const double seconds = 1e-6 * use.us, measured = seconds * sms[tier] / load.rows;
    const bool enough_rows = use.rows >= kRowsToLearnFrom;
    if (tier != kHostTier) {
      if (enough_rows) load.sm_seconds_a_row = measured;
      continue;
    }
    // Far rows come over the same link.
    const auto bytes = static_cast<double>(use.bytes + uses[kDiskTier].bytes + uses[kRemoteTier].bytes);
    load.least_seconds = enough_rows ? link_seconds(bytes, seconds) : bytes / host_bytes_per_second_;
    if (!enough_rows) continue;
    load.sm_seconds_a_row = host_cost(measured, sms[tier], seconds < kLinkBound * load.least_seconds);
  }
}

}  // namespace cohort::cache
