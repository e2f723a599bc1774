// A file of encoded rows, and what fetches of its rows give.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cache/tiered_rows.h"
#include "tests/ibp/rows.h"

namespace cohort::cache {

class FileOfRows : public testing::Test {
 protected:
  static constexpr int64_t kNumRows = 5000;
  static constexpr uint32_t kNumColumns = 96;

  FileOfRows(const char* codec, ibp::LayoutChoice layout)
      : rows_(mixed_rows()), encoded_(encoded_by(codec, layout)), profile_(encoded_.profile) {
    ibp::save(encoded_, file_);
  }
  ~FileOfRows() override { std::filesystem::remove(file_); }

  std::shared_ptr<const HostRows> map(bool checks = false) const {
    return std::make_shared<const HostRows>(HostRows::open(file_, {kNumRows, kNumColumns, "float32"}, checks));
  }
  // A copy of all rows by the fetch, one after the other.
  std::vector<std::byte> fetched(const TieredRows& rows, const std::vector<int64_t>& ids, bool plane_a = false) {
    std::vector<std::byte> out = room_for(ids);
    TieredFetch fetch = rows.fetch(ids, out.data(), plane_a);
    use_ = fetch.far.finish();
    host_ = fetch.host;
    return out;
  }
  std::vector<std::byte> expected(const auto& ids) const {
    std::vector<std::byte> out;
    for (const int64_t id : ids) {
      out.insert(out.end(), rows_.table.row(id), rows_.table.row(id) + rows_.table.row_bytes());
    }
    return out;
  }
  std::vector<std::byte> room_for(const auto& ids) const {
    return std::vector<std::byte>(ids.size() * rows_.table.row_bytes());
  }
  template <typename Id = int64_t>
  static std::vector<Id> random_ids(std::size_t count, uint64_t seed = 3) {
    std::vector<Id> ids(kNumRows);
    std::iota(ids.begin(), ids.end(), Id{0});
    std::ranges::shuffle(ids, std::mt19937_64(seed));
    ids.resize(count);
    return ids;
  }

  const ibp::Rows& rows_;
  const ibp::EncodedRows& encoded_;
  const ibp::Profile& profile_;
  std::string file_ = testing::TempDir() + "file_of_rows.ibp";
  FarUse use_;
  base::TierUse host_;

 private:
  static const ibp::Rows& mixed_rows() {
    static const ibp::Rows rows = ibp::make_rows(ibp::Content::kMixed, ibp::Dtype::kFloat32, kNumColumns, kNumRows);
    return rows;
  }
  static const ibp::EncodedRows& encoded_by(const char* codec, ibp::LayoutChoice layout) {
    static std::map<std::pair<std::string, ibp::LayoutChoice>, ibp::EncodedRows> made;
    const auto [at, is_new] = made.try_emplace({codec, layout});
    const ibp::RowTable& table = mixed_rows().table;
    if (is_new) at->second = ibp::encode(table, ibp::fit(table, {.codec = codec}).profile, {.layout = layout});
    return at->second;
  }
};

}  // namespace cohort::cache
