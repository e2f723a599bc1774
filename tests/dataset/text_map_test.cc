#include "dataset/sorting/text_map.h"

#include <gtest/gtest.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "base/random.h"
#include "dataset/parallel.h"

namespace cohort::dataset {
namespace {

// Texts in memory of their own, after `skipped` bytes of others.
struct Column {
  explicit Column(const std::vector<std::string>& texts, std::size_t skipped = 0) : bytes(skipped, 'x') {
    offsets.push_back(static_cast<int64_t>(skipped));
    for (const std::string& text : texts) {
      bytes += text;
      offsets.push_back(static_cast<int64_t>(bytes.size()));
    }
  }
  Texts texts() const { return {offsets, bytes.data()}; }
  std::vector<int64_t> offsets;
  std::string bytes;
};

std::vector<int64_t> found(const TextMap& map, const std::vector<std::string>& texts) {
  std::vector<int64_t> nodes(texts.size());
  map.find(Column(texts, 3).texts(), nodes, {});
  return nodes;
}

TEST(TextMap, FindsEveryTextAndNoOther) {
  const std::vector<std::string> ids = {"a", "", "ab", std::string("a\0b", 3), std::string(5000, 'l'), "\xc3\xa4"};
  const TextMap map(Column(ids, 7).texts(), {});
  EXPECT_EQ(found(map, ids), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(found(map, {"b", std::string("a\0c", 3), std::string("a\0", 2), std::string(4999, 'l'), "A"}),
            (std::vector<int64_t>(5, -1)));
  EXPECT_EQ(map.distinct(), 6);
}

TEST(TextMap, EveryByteOfATextOfAnyLengthCounts) {
  std::vector<std::string> ids, others;
  for (std::size_t length = 0; length < 40; ++length) {
    ids.push_back(std::string(length, 'a'));
    for (std::size_t place = 0; place < length; ++place) others.emplace_back(ids.back()).at(place) = 'b';
  }
  const TextMap map(Column(ids).texts(), {});
  EXPECT_EQ(map.distinct(), 40);
  EXPECT_EQ(found(map, others), std::vector<int64_t>(others.size(), -1));
  ids.insert(ids.end(), others.begin(), others.end());
  EXPECT_EQ(TextMap(Column(ids).texts(), {}).distinct(), static_cast<int64_t>(ids.size()));
}

TEST(TextMap, NoTextIsFoundAmongNone) {
  const TextMap map(Column({}).texts(), {});
  EXPECT_EQ(map.distinct(), 0);
  EXPECT_EQ(found(map, {"", "a"}), (std::vector<int64_t>{-1, -1}));
  EXPECT_EQ(found(map, {}), std::vector<int64_t>());
}

TEST(TextMap, AgreesWithAStandardMapOnManyTexts) {
  std::vector<std::string> ids, asked;
  std::unordered_map<std::string, int64_t> twin;
  for (uint64_t i = 0; i < 300'000; ++i) {
    const uint64_t id = base::random_below(200'000, base::key_of(3), i, uint64_t{0});
    ids.push_back("id-" + std::to_string(id * id));
    twin.emplace(ids.back(), static_cast<int64_t>(i));
    asked.push_back("id-" + std::to_string(i % 3 == 0 ? id * id + 2 : id * id));
  }
  const TextMap map(Column(ids).texts(), {});
  EXPECT_EQ(map.distinct(), static_cast<int64_t>(twin.size()));
  std::vector<int64_t> wanted;
  for (const std::string& text : asked) wanted.push_back(twin.contains(text) ? twin[text] : -1);
  EXPECT_EQ(found(map, asked), wanted);
}

TEST(TextMap, ARequestToStopEndsIt) {
  std::stop_source stop;
  stop.request_stop();
  const Column ids({"a", "b"});
  EXPECT_THROW(TextMap(ids.texts(), stop.get_token()), Interrupted);
  std::vector<int64_t> nodes(2);
  EXPECT_THROW(TextMap(ids.texts(), {}).find(ids.texts(), nodes, stop.get_token()), Interrupted);
}

}  // namespace
}  // namespace cohort::dataset
