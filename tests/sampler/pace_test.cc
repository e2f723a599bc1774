#include "sampler/pace.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace cohort::sampler {
namespace {

// A ring of three slots: one is fetched into, one is ready, one is trained on. Fetching takes `work_us` by one SM.
// Returns the SMs after so many batches, and the share of its time that the trainer waited in the second half of them.
struct Outcome {
  int sms = 0;
  double waited = 0;
};
Outcome run(int most_sms, double work_us, double step_us, int batches = 400) {
  Pace pace(most_sms);
  double free_us[3] = {}, fetched_us = 0, trained_us = 0, waited_us = 0, half_us = 0;
  for (int batch = 0; batch < batches; ++batch) {
    const double begin_us = std::max(fetched_us, free_us[batch % 3]) + 50;  // launches
    const double sampled_us = fetched_us;                                   // while the rows before came
    fetched_us = begin_us + work_us / pace.sms();
    pace.learn(sampled_us, {begin_us, fetched_us});
    if (batch == batches / 2) half_us = trained_us;
    if (batch >= batches / 2) waited_us += std::max(0.0, fetched_us - trained_us);
    trained_us = std::max(trained_us, fetched_us) + step_us;
    free_us[batch % 3] = trained_us;
  }
  return {pace.sms(), waited_us / (trained_us - half_us)};
}

TEST(Pace, TakesAboutAsManyAsHideBehindTheTrainer) {
  for (const int enough : {4, 9, 20}) {
    const Outcome found = run(32, 10000.0 * enough, 10000);
    EXPECT_GE(found.sms, enough - 1);
    EXPECT_LE(found.sms, enough + 3 + enough / 4);
    EXPECT_LT(found.waited, 0.02);
  }
}

// Nobody waits for the trainer: sampling the next batch, on the SMs that are left, goes on beside the fetch.
TEST(Pace, LeavesSamplingTheSmsThatItNeeds) {
  for (const double share : {0.3, 0.5, 0.7}) {  // of the work that is sampling
    const int num_sms = 32;
    const double work_us = 64'000;
    Pace pace(num_sms - num_sms / 4);
    double fetched_us = 0, sampled_us = 0, half_us = 0;
    for (int batch = 0; batch < 400; ++batch) {
      const double begin_us = std::max(fetched_us, sampled_us) + 50;
      const int sms = pace.sms();
      fetched_us = begin_us + (1 - share) * work_us / sms;
      pace.learn(sampled_us, {begin_us, fetched_us});
      sampled_us = begin_us + share * work_us / (num_sms - sms);
      if (batch == 199) half_us = fetched_us;
    }
    EXPECT_LT((fetched_us - half_us) / 200, 1.2 * work_us / num_sms) << share;
  }
}

TEST(Pace, TakesAllWhereTheTrainerWaits) { EXPECT_EQ(run(32, 1e6, 10000).sms, 32); }

TEST(Pace, KeepsOneWhereNoneIsNeeded) { EXPECT_EQ(run(32, 100, 10000).sms, 1); }

TEST(Pace, APauseBetweenPassesIsNoWait) {
  Pace pace(32);
  pace.learn(100, {100, 200});
  pace.learn(1'000'050, {1'000'050, 1'000'150});  // sampled after the pause
  EXPECT_EQ(pace.sms(), 32);
}

}  // namespace
}  // namespace cohort::sampler
