#include "sampler/options.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sampler/presample.h"
#include "tests/base/fails.h"
#include "tests/dataset/temporary_folder.h"

namespace cohort::sampler {
namespace {

using nlohmann::json;

class OptionsFile : public testing::Test {
 protected:
  // Options of two ranks on the CPU, with these members besides.
  Options read(const json& members) {
    json sampler = {{"dataset", "data"}, {"channel", folder_.path().string()}, {"num_ranks", 2}};
    sampler.update(members);
    dataset::write_bytes(folder_ / "run.json", json{{"sampler", sampler}}.dump());
    return read_options(folder_ / "run.json");
  }
  // What reading them ends in.
  std::string refusal(const json& members) {
    return base::error_of([&] { read(members); });
  }

  dataset::TemporaryFolder folder_;
};

TEST_F(OptionsFile, WithoutACacheHasDefaults) {
  const Options options = read(json::object());
  EXPECT_TRUE(options.cache_bytes.empty());
  EXPECT_EQ(options.order, "address");
  EXPECT_EQ(options.host_bytes, -1);
  EXPECT_EQ(options.ahead, 8);
  EXPECT_EQ(options.cliques, "auto");
  EXPECT_EQ(options.fetch_sms, 0);
  EXPECT_EQ(options.bytes_per_second, (std::array<double, 3>{1500e9, 360e9, 51e9}));
  EXPECT_EQ(options.seconds_per_line, (std::array<double, 3>{0, 0, 0}));
}

TEST_F(OptionsFile, RefusesAChannelThatCannotBe) {
  EXPECT_NE(refusal({{"channel", std::string(8000, 'a')}}).find("expected an existing folder"), std::string::npos);
}

TEST_F(OptionsFile, GivesTheCacheAsWritten) {
  const Options options = read({{"cache_bytes", {1000, 5'000'000'000}},
                                {"cache_policy", "plan"},
                                {"hotness", "counts.bin"},
                                {"order", "asis"},
                                {"host_bytes", 40'000'000'000},
                                {"ahead", 3},
                                {"cliques", "1x2"},
                                {"bytes_per_second", {3e12, 4e11, 5e10}},
                                {"seconds_per_line", {0, 1e-9, 2e-9}},
                                {"plan_file", "plan.json"},
                                {"fetch_sms", 8}});
  EXPECT_EQ(options.cache_bytes, (std::vector<int64_t>{1000, 5'000'000'000}));
  EXPECT_EQ(options.cache_policy, "plan");
  EXPECT_EQ(options.hotness, "counts.bin");
  EXPECT_EQ(options.order, "asis");
  EXPECT_EQ(options.host_bytes, 40'000'000'000);
  EXPECT_EQ(options.ahead, 3);
  EXPECT_EQ(options.cliques, "1x2");
  EXPECT_EQ(options.bytes_per_second, (std::array<double, 3>{3e12, 4e11, 5e10}));
  EXPECT_EQ(options.seconds_per_line, (std::array<double, 3>{0, 1e-9, 2e-9}));
  EXPECT_EQ(options.plan_file, "plan.json");
  EXPECT_EQ(options.fetch_sms, 8);
}

TEST_F(OptionsFile, GivesTheOwnersOfRowsAsWritten) {
  json owners = {{"names", {"a", "b"}}, {"hosts", {"10.0.0.1", "10.0.0.2"}}, {"ports", {4000, 4001}}, {"own", 1},
                 {"listener", 7},       {"key", std::string(32, 'k')},       {"seconds", 2.5}};
  const RowOwners found = read({{"row_owners", owners}}).row_owners;
  EXPECT_EQ(found.names, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(found.hosts, (std::vector<std::string>{"10.0.0.1", "10.0.0.2"}));
  EXPECT_EQ(found.ports, (std::vector<int>{4000, 4001}));
  EXPECT_EQ(found.own, 1);
  EXPECT_EQ(found.listener, 7);
  EXPECT_EQ(found.key, std::string(32, 'k'));
  EXPECT_EQ(found.seconds, 2.5);
  EXPECT_TRUE(read(json::object()).row_owners.hosts.empty());
  const std::pair<const char*, json> bad[] = {
      {"own", 2},       {"own", -1}, {"ports", {4000}}, {"ports", {0, 1}}, {"hosts", {"10.0.0.1"}},
      {"listener", -1}, {"key", ""}, {"seconds", 0},    {"names", {"a"}}};
  for (const auto& [name, value] : bad) {
    json other = owners;
    other[name] = value;
    EXPECT_NE(refusal({{"row_owners", other}}).find("row_owners: expected two or more machines"), std::string::npos)
        << name << value;
  }
  owners["port"] = 1;
  EXPECT_NE(refusal({{"row_owners", owners}}).find("only known members"), std::string::npos);
  EXPECT_NE(refusal({{"row_owners", 1}}).find("row_owners: expected an object"), std::string::npos);
}

TEST_F(OptionsFile, RefusesACountWithoutAFanout) {
  dataset::write_bytes(folder_ / "count.json", R"({"dataset": "", "fanout": []})");
  EXPECT_TRUE(base::fails_with([&] { read_presample_options(folder_ / "count.json"); },
                               {"fanout: expected numbers of at least 0, or -1 for all, found none"}));
}

TEST_F(OptionsFile, NeedsNoCountsForOtherPolicies) {
  for (const char* policy : {"degree", "random", "none"}) {
    EXPECT_EQ(refusal({{"cache_bytes", {1, 2}}, {"cache_policy", policy}}), "no error") << policy;
  }
}

TEST_F(OptionsFile, RefusesACacheThatMakesNoSense) {
  const std::pair<json, const char*> cases[] = {
      {{{"cache_policy", "lru"}}, "cache_policy: expected plan, degree, random or none, found lru"},
      {{{"order", "random"}}, "order: expected address or asis, found random"},
      {{{"host_bytes", -2}}, "host_bytes: expected 0 bytes or more, or -1 for no limit, found -2"},
      {{{"ahead", 0}}, "ahead: expected at least 1, found 0"},
      {{{"cache_bytes", {1}}, {"cache_policy", "degree"}}, "cache_bytes: expected one for each of 2 ranks, found 1"},
      {{{"cache_bytes", {1, -2}}, {"cache_policy", "degree"}}, "cache_bytes: expected 0 bytes or more, found -2"},
      {{{"cache_bytes", "1GB"}}, "sampler.cache_bytes: expected a list of numbers"},
      {{{"pool_share", 0}}, "pool_share: expected a number above 0, at most 1, found 0"},
      {{{"pool_share", 1.5}}, "pool_share: expected a number above 0, at most 1, found 1.5"},
      {{{"pool_share", "all"}}, "sampler.pool_share: expected a number, found \"all\""},
      {{{"reuse", "yes"}}, "sampler.reuse: expected true or false, found \"yes\""},
      {{{"cache_bytes", {1, 2}}}, "hotness: expected a file of counts"},
      {{{"rank_hotness", {"a"}}, {"cache_bytes", {1, 2}}}, "rank_hotness: expected one for each of 2 ranks, found 1"},
      {{{"rank_hotness", 7}}, "rank_hotness: expected a list of texts, found 7"},
      {{{"cliques", "3+5"}}, "cliques: expected 2 GPUs in all"},
      {{{"num_ranks", 9}, {"cliques", "all"}}, "cliques: expected at most 8 GPUs in each, found 9"},
      {{{"cliques", "pairs"}}, "cliques: expected none, all, or sizes"},
      {{{"bytes_per_second", {1, 2}}}, "bytes_per_second: expected 3 numbers, found 2"},
      {{{"bytes_per_second", {3, 2, 0}}}, "bytes_per_second: expected numbers above 0"},
      {{{"seconds_per_line", {0, 0, -1}}}, "seconds_per_line: expected numbers of at least 0"},
      {{{"fetch_sms", -1}}, "fetch_sms: expected at least 1, or 0"},
      {{{"sampler_threads", -1}}, "sampler_threads: expected at least 1, or 0"},
      {{{"fetch_blocks", 32}}, "only known members"},
      {{{"device", "tpu"}}, "expected cpu or cuda"},
      {{{"seed", "one"}}, "sampler.seed"},
      {{{"num_ranks", 4294967298}}, "sampler.num_ranks: expected an integer in [-2147483648, 2147483647]"},
      {{{"num_ranks", 1.5}}, "sampler.num_ranks: expected an integer"},
      {{{"num_ranks", true}}, "sampler.num_ranks: expected an integer"},
      {{{"num_ranks", 1000000000}}, "num_ranks: expected 1 to 1024, found 1000000000"},
      {{{"seed", -1}}, "sampler.seed: expected an integer in [0, 18446744073709551615], found -1"},
      {{{"cache_bytes", {1, 1e300}}}, "sampler.cache_bytes: expected a list of numbers"},
  };
  for (const auto& [members, words] : cases) {
    EXPECT_NE(refusal(members).find(words), std::string::npos) << members << ": " << refusal(members);
  }
}

TEST_F(OptionsFile, RefusesAFileWithoutWhatASamplerNeeds) {
  const std::pair<const char*, const char*> cases[] = {{"{", "expected JSON"},
                                                       {"[]", "expected a member \"sampler\""},
                                                       {R"({"sampler": {"dataset": "x"}})", "a member \"channel\""}};
  for (const auto& [text, words] : cases) {
    dataset::write_bytes(folder_ / "run.json", text);
    EXPECT_TRUE(base::fails_with([&] { read_options(folder_ / "run.json"); }, {words}));
  }
}

TEST_F(OptionsFile, RefusesJsonOfAnyDepth) {
  const std::string nest(100000, '[');
  dataset::write_bytes(folder_ / "run.json", "{\"sampler\": {\"num_ranks\": " + nest + std::string(100000, ']') + "}}");
  EXPECT_TRUE(base::fails_with([&] { read_options(folder_ / "run.json"); }, {"JSON of at most 32 levels"}));
}

}  // namespace
}  // namespace cohort::sampler
