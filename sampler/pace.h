// How many SMs fetch rows: as few as have a batch ready when the trainer wants it. What they do not take, it trains on.
//
// A batch that had to wait, for its slot or to be sampled, would have come in time with fewer SMs: fewer do next time,
// and sampling has more. One that followed the last without a break may be what the trainer waits for: more do.
#pragma once

#include "base/process.h"

namespace cohort::sampler {

class Pace {
 public:
  explicit Pace(int most_sms) : most_sms_(most_sms), sms_(most_sms) {}
  int sms() const { return sms_; }
  // A batch that was sampled at `sampled_us` and written into its slot then.
  void learn(double sampled_us, const base::Span& fetch);

 private:
  int most_sms_, sms_;
  double last_end_us_ = 0;
};

}  // namespace cohort::sampler
