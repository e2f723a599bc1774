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
constexpr int64_t kRowsToLearnFrom = 4096;  // of fewer rows most of the time is the launch's

double seconds(const TierLoad& load, int sms) {
  return std::max(load.least_seconds, load.rows * load.sm_seconds_a_row / sms);
}

}  // namespace

std::array<int, kNumTiers> share_sms(int num_sms, const std::array<TierLoad, kNumTiers>& loads) {
  std::array<int, kNumTiers> sms;
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
                 const std::array<bool, kNumTiers>& present)
    : num_sms_(num_sms), host_bytes_per_second_(host_bytes_per_second) {
  for (std::size_t tier = 0; tier < loads_.size(); ++tier) {
    loads_[tier] = {1, static_cast<double>(row_bytes) / kSmBytesPerSecond, 0, present[tier]};
  }
}

void SmShare::learn(const TierUses& uses, const std::array<int, kNumTiers>& sms) {
  for (std::size_t tier = 0; tier < uses.size(); ++tier) {
    TierLoad& load = loads_[tier];
    const TierUse& use = uses[tier];
    load.rows = static_cast<double>(use.rows);
    load.least_seconds = tier == kHostTier ? static_cast<double>(use.bytes) / host_bytes_per_second_ : 0;
    if (use.rows < kRowsToLearnFrom) continue;
    const double measured = 1e-6 * use.us * sms[tier] / load.rows;
    const bool link_bound = 1e-6 * use.us < kLinkBound * load.least_seconds;
    load.sm_seconds_a_row = link_bound ? kLess * std::min(load.sm_seconds_a_row, measured) : measured;
  }
}

}  // namespace cohort::cache
