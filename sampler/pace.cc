#include "sampler/pace.h"

#include <algorithm>

namespace cohort::sampler {
namespace {

// Shares of the time from batch to batch that nothing was fetched in.
constexpr double kTooEarly = 0.10, kTooLate = 0.03;
constexpr double kPause = 8;     // times as long as the fetch: nothing was asked for, as between two passes
constexpr double kHostUs = 200;  // between two batches that nobody waits for: launches, and a look at a flag

}  // namespace

void Pace::learn(double sampled_us, const base::Span& fetch) {
  const double taken_us = fetch.end_us - last_end_us_;
  const double idle_us = fetch.begin_us - last_end_us_ - kHostUs;
  const bool pause = sampled_us - last_end_us_ > kPause * fetch.us();
  last_end_us_ = fetch.end_us;
  if (pause) return;
  const int step = std::max(1, sms_ / 8);
  if (idle_us > kTooEarly * taken_us) sms_ = std::max(1, sms_ - step);
  if (idle_us < kTooLate * taken_us) sms_ = std::min(most_sms_, sms_ + step);
}

}  // namespace cohort::sampler
