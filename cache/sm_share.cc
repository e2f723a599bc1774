#include "cache/sm_share.h"

#include <algorithm>
#include <numeric>

namespace cohort::cache {
namespace {

constexpr double kSmBytesPerSecond = 12e9;  // decoded, by one SM: a careful guess, for the first batch alone
constexpr int64_t kRowsToLearnFrom = 4096;  // of fewer rows most of the time is the launch's

double seconds(const TierLoad& load, int sms) {
  return std::max(load.least_seconds, load.rows * load.sm_seconds_a_row / sms);
}

}  // namespace

std::array<int, kNumTiers> share_sms(int num_sms, const std::array<TierLoad, kNumTiers>& loads) {
  std::array<int, kNumTiers> sms;
  sms.fill(1);
  for (int used = kNumTiers; used < num_sms; ++used) {
    std::size_t slowest = 0;
    for (std::size_t tier = 1; tier < loads.size(); ++tier) {
      if (seconds(loads[tier], sms[tier]) > seconds(loads[slowest], sms[slowest])) slowest = tier;
    }
    if (seconds(loads[slowest], sms[slowest]) <= loads[slowest].least_seconds) break;  // its link is the limit
    ++sms[slowest];
  }
  return sms;
}

SmShare::SmShare(int num_sms, int64_t row_bytes, double host_bytes_per_second)
    : num_sms_(num_sms), host_bytes_per_second_(host_bytes_per_second) {
  for (TierLoad& load : loads_) load = {1, static_cast<double>(row_bytes) / kSmBytesPerSecond, 0};
}

void SmShare::learn(const TierUses& uses, const std::array<int, kNumTiers>& sms) {
  for (std::size_t tier = 0; tier < uses.size(); ++tier) {
    TierLoad& load = loads_[tier];
    const TierUse& use = uses[tier];
    load.rows = static_cast<double>(use.rows);
    load.least_seconds = tier == kHostTier ? static_cast<double>(use.bytes) / host_bytes_per_second_ : 0;
    if (use.rows < kRowsToLearnFrom) continue;
    const double measured = 1e-6 * use.us * sms[tier] / load.rows;
    const bool link_bound = 1e-6 * use.us < 1.1 * load.least_seconds;  // the SMs waited: they cost less than that
    load.sm_seconds_a_row = link_bound ? std::min(load.sm_seconds_a_row, measured) : measured;
  }
}

}  // namespace cohort::cache
