#include "cache/sm_share.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace cohort::cache {
namespace {

using Loads = std::array<TierLoad, kNumLinks>;
using Sms = std::array<int, kNumLinks>;

const TierLoad kAbsent{0, 0, 0, false};

double slowest(const Loads& loads, const Sms& sms) {
  double most = 0;
  for (std::size_t i = 0; i < loads.size(); ++i) {
    if (!loads[i].present) continue;
    most = std::max({most, loads[i].least_seconds, loads[i].rows * loads[i].sm_seconds_a_row / sms[i]});
  }
  return most;
}

TEST(ShareSms, NoOtherShareIsFaster) {
  const Loads cases[] = {
      {{{1e6, 40e-9, 0}, {0, 40e-9, 0}, {1e5, 40e-9, 1e-3}}},
      {{{1e6, 40e-9, 0}, {9e5, 45e-9, 0}, {1e6, 40e-9, 8e-3}}},
      {{{0, 40e-9, 0}, {0, 40e-9, 0}, {1e6, 40e-9, 8e-3}}},
      {{{3e6, 10e-9, 0}, {1e3, 10e-9, 0}, {5e6, 100e-9, 1e-3}}},
  };
  for (const Loads& loads : cases) {
    const int num_sms = 20;
    const Sms sms = share_sms(num_sms, loads);
    EXPECT_LE(sms[0] + sms[1] + sms[2], num_sms);
    for (int a = 1; a < num_sms; ++a) {
      for (int b = 1; a + b < num_sms; ++b) {
        EXPECT_LE(slowest(loads, sms), slowest(loads, {a, b, num_sms - a - b}) * (1 + 1e-12));
      }
    }
  }
}

TEST(ShareSms, TakesNoMoreThanHelp) {
  EXPECT_EQ(share_sms(64, {{{0, 40e-9, 0}, {0, 40e-9, 0}, {1e6, 40e-9, 8e-3}}}), (Sms{1, 1, 5}));
  EXPECT_EQ(share_sms(64, {{{0, 40e-9, 0}, {0, 40e-9, 0}, {0, 40e-9, 0}}}), (Sms{1, 1, 1}));
  EXPECT_EQ(share_sms(1, {{{1, 1, 0}, {1, 1, 0}, {1, 1, 0}}}), (Sms{1, 1, 1}));
}

TEST(ShareSms, WhatIsAbsentGetsNone) {
  EXPECT_EQ(share_sms(8, {{kAbsent, kAbsent, {1e6, 40e-9, 0}}}), (Sms{0, 0, 8}));
  EXPECT_EQ(share_sms(8, {{kAbsent, {1e6, 40e-9, 0}, {1e6, 40e-9, 0}}}), (Sms{0, 4, 4}));
  EXPECT_EQ(share_sms(8, {{kAbsent, kAbsent, kAbsent}}), (Sms{0, 0, 0}));
}

// A link that 6 SMs saturate, and batches that take up to 4 % longer than that says.
double host_ms(int sms, int batch) { return std::max(10.5, 63.0 / sms) * (1 + 0.01 * (batch * 7 % 5)); }

TEST(SmShare, FindsTheFewestThatSaturateALinkWhateverABatchTook) {
  SmShare share(32, 512, 51e9, {false, false, true});
  Sms sms = share.next();
  for (int batch = 0; batch < 100; ++batch) {
    const double ms = batch == 0 || batch == 50 ? 40 : host_ms(sms[2], batch);  // two that something held up
    share.learn({{{}, {}, {1'200'000, 535'500'000, 1e3 * ms}, {}}}, sms);
    sms = share.next();
    if (batch % 50 > 20) {
      EXPECT_GE(sms[2], 5) << batch;
      EXPECT_LE(sms[2], 7) << batch;
    }
  }
}

// Rows that straddle lines get 40 GB/s of a link of 51, which 6.3 SMs saturate.
TEST(SmShare, FindsTheFewestAlsoWhereRowsNeverSeeTheRateOfTheLink) {
  for (const int most : {32, 6, 4}) {
    SmShare share(most, 400, 51e9, {false, false, true});
    double sum_ms = 0, sum_sms = 0;
    for (int batch = 0; batch < 300; ++batch) {
      const Sms sms = share.next();
      const double ms = std::max(12.0, 75.6 / sms[2]) * (1 + 0.01 * (batch * 7 % 5));
      share.learn({{{}, {}, {1'200'000, 480'000'000, 1e3 * ms}, {}}}, sms);
      if (batch < 100) continue;
      sum_ms += ms;
      sum_sms += sms[2];
    }
    EXPECT_LT(sum_sms / 200, 8) << most;
    EXPECT_LT(sum_ms / 200, 1.04 * std::max(12.0, 75.6 / most)) << most;
  }
}

// Far rows take as much of the link as host rows: together they saturate it, if 6 SMs read host rows.
TEST(SmShare, FarRowsShareTheLinkOfTheHost) {
  for (const std::size_t far : {kDiskTier, kRemoteTier}) {
    SmShare share(32, 512, 51e9, {false, false, true});
    for (int batch = 0; batch < 100; ++batch) {
      const Sms sms = share.next();
      TierUses uses{};
      uses[kHostTier] = {600'000, 267'750'000, 1e3 * host_ms(sms[2], batch)};
      uses[far] = {600'000, 267'750'000, 11'000};
      share.learn(uses, sms);
      if (batch > 20) {
        EXPECT_GE(sms[2], 5) << batch;
        EXPECT_LE(sms[2], 7) << batch;
      }
    }
  }
}

TEST(SmShare, LearnsWhatARowCosts) {
  SmShare share(33, 512, 50e9, {true, true, true});
  EXPECT_EQ(share.next(), (Sms{11, 11, 11})) << "nothing is known";
  // Local rows at 100 ns on an SM, no peers, host rows bound by their link.
  const TierUses uses = {{{100'000, 50'000'000, 100'000 * 0.1 / 11}, {}, {200'000, 90'000'000, 1800}, {}}};
  share.learn(uses, {11, 11, 11});
  const Sms sms = share.next();
  EXPECT_EQ(sms[1], 1);
  EXPECT_EQ(sms[0], 6) << "10 ms of one SM while the host's link takes 1.8";
  EXPECT_LE(sms[2], 11);
  // Host rows that no link limits: all SMs that local rows leave.
  share.learn({{{}, {}, {1'000'000, 1'000'000, 10'000}, {}}}, sms);
  EXPECT_EQ(share.next(), (Sms{1, 1, 31}));
}

}  // namespace
}  // namespace cohort::cache
