// How many SMs read from each tier: what makes a batch's slowest tier fastest, with as few SMs as that takes.
//
// A tier of r rows on s SMs takes max(r x c / s, bytes / link) seconds. c, the time of one SM for a row, is learned
// from the batches before: rows of 512 bytes from a slab take an H200 about 24 ns each (22 GB/s an SM).
#pragma once

#include <array>

#include "cache/plan/cost.h"

namespace cohort::cache {

// What a batch asks of a tier.
struct TierLoad {
  double rows = 0;
  double sm_seconds_a_row = 0;
  double least_seconds = 0;  // what its link needs, however many SMs read
  bool present = true;
};

// SMs of each tier that is present: at least 1, at most `num_sms` in all where that is possible, and no more than help.
std::array<int, kNumLinks> share_sms(int num_sms, const std::array<TierLoad, kNumLinks>& loads);

class SmShare {
 public:
  // `present`: the tiers that rows may come from.
  SmShare(int num_sms, int64_t row_bytes, double host_bytes_per_second, const std::array<bool, kNumLinks>& present);
  void set_num_sms(int num_sms) { num_sms_ = num_sms; }
  // For the next batch, expected to be like the last.
  std::array<int, kNumLinks> next() const { return share_sms(num_sms_, loads_); }
  // What a batch read with these SMs, and in what time.
  void learn(const TierUses& uses, const std::array<int, kNumLinks>& sms);

 private:
  double link_seconds(double bytes, double seconds);
  double host_cost(double sm_seconds_a_row, int sms, bool link_bound);

  int num_sms_;
  double host_bytes_per_second_;
  std::array<TierLoad, kNumLinks> loads_;
  double best_seconds_a_byte_ = 0;  // that the host's link has shown; 0: nothing near its rate yet
  int enough_ = 0;                  // SMs of the last batch that was bound by the host's link
  int too_few_ = 0;                 // SMs with which a batch was not, after that
  int batches_since_ = 0;           // too_few_ was seen
};

}  // namespace cohort::cache
