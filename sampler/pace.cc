#include "sampler/pace.h"

#include <algorithm>

namespace cohort::sampler {
namespace {

// Shares of the time between two batches that the slot was waited for.
constexpr double kTooEarly = 0.10, kTooLate = 0.03;
constexpr double kHostUs = 200;  // between two batches that nobody waits for: launches, and a look at a flag

}  // namespace

void Pace::learn(double sampled_us, const base::Span& fetch) {
  const double could_begin_us = std::max(sampled_us, last_end_us_);
  const double taken_us = fetch.end_us - could_begin_us;
  const double waited_us = fetch.begin_us - could_begin_us - kHostUs;
  last_end_us_ = fetch.end_us;
  const int step = std::max(1, sms_ / 8);
  if (waited_us > kTooEarly * taken_us) sms_ = std::max(1, sms_ - step);
  if (waited_us < kTooLate * taken_us) sms_ = std::min(most_sms_, sms_ + step);
}

}  // namespace cohort::sampler
