#include "cache/sm_share.h"

#include <algorithm>
#include <numeric>

namespace cohort::cache {
namespace {

constexpr double kSmBytesPerSecond = 12e9;  // decoded, by one SM: a careful guess, for the first batch alone
// An SM reads so much from the host: 8 of them saturate a link of 51 GB/s, whatever the codec.
constexpr double kHostBytesPerSecond = 6.4e9;
// Copies of recent rows end before the other tiers: the next batch's slot, which they may read, is written after them.
constexpr double kRecentEarlier = 1.25;
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
    const auto rows = static_cast<double>(uses[tier].rows), bytes = static_cast<double>(uses[tier].bytes);
    load.rows = rows;
    if (tier == kHostTier) load.least_seconds = bytes / host_bytes_per_second_;
    if (uses[tier].rows < kRowsToLearnFrom) continue;
    const double earlier = tier == static_cast<std::size_t>(Tier::kRecent) ? kRecentEarlier : 1;
    load.sm_seconds_a_row =
        tier == kHostTier ? bytes / rows / kHostBytesPerSecond : earlier * 1e-6 * uses[tier].us * sms[tier] / rows;
  }
}

}  // namespace cohort::cache
