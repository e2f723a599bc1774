// Plans, batches and rows to test the fetch of feature rows with.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "cache/feature_fetch.h"
#include "cache/fill_slabs.h"
#include "tests/base/on_gpu.h"
#include "tests/cache/feature_table.h"

namespace cohort::cache {

// A clique of members that all are GPU 0: as far as the directory is concerned, others are peers. Every third node (or
// as `every` says) is cached, shared out in turn; `replicas` of member 0 are cached by member 1 too.
inline Plan plan_of(const Table& table, const SlabRows& rows, int num_members, int64_t replicas, uint32_t every = 3) {
  Plan plan;
  plan.cliques.resize(1);
  CliqueRows& clique = plan.cliques[0].rows[0];
  plan.gpus.resize(static_cast<std::size_t>(num_members));
  const RowSizes sizes = rows.sizes();
  for (uint32_t node = 0; node < table.rows.shape.num_rows; node += every) {
    const auto owner = static_cast<uint16_t>(node / every % static_cast<uint32_t>(num_members));
    clique.nodes.push_back(node);
    clique.owners.push_back(owner);
    plan.gpus[owner].slabs[0].nodes.push_back(node);
    if (num_members > 1 && owner == 0 && replicas-- > 0) plan.gpus[1].slabs[0].nodes.push_back(node);
  }
  for (int member = 0; member < num_members; ++member) {
    plan.cliques[0].gpus.push_back(member);
    Slab& slab = plan.gpus[static_cast<std::size_t>(member)].slabs[0];
    for (const uint32_t node : slab.nodes) slab.bytes += sizes.each.empty() ? sizes.row_bytes : sizes.each[node];
    slab.num_entries = static_cast<int64_t>(clique.nodes.size());
  }
  return plan;
}

inline std::vector<std::byte> fetch(FeatureFetch& fetch, const Table& table, const std::vector<int64_t>& nodes,
                                    bool plane_a = false) {
  const base::DeviceArray<int64_t> on_gpu = base::upload(nodes);
  const std::size_t bytes = nodes.size() * static_cast<std::size_t>(table.rows.row_bytes);
  const base::DeviceBytes out(bytes + 256);
  base::fill_gpu(out.data(), 0xFF, bytes + 256);
  const base::Stream stream;
  fetch.fetch(on_gpu.data(), static_cast<int64_t>(nodes.size()), {.rows = out.data(), .plane_a = plane_a}, stream);
  stream.synchronize();
  std::vector<std::byte> rows = base::download(out);
  EXPECT_TRUE(std::all_of(rows.end() - 256, rows.end(), [](std::byte b) { return b == std::byte{0xFF}; }));
  rows.resize(bytes);
  return rows;
}

inline std::vector<int64_t> random_nodes(int64_t num_rows, int64_t count, uint64_t seed = 3) {
  std::vector<int64_t> nodes(static_cast<std::size_t>(num_rows));
  std::iota(nodes.begin(), nodes.end(), 0);
  std::shuffle(nodes.begin(), nodes.end(), std::mt19937_64(seed));
  nodes.resize(static_cast<std::size_t>(count));
  return nodes;
}

inline void expect_rows(const Table& table, const std::vector<int64_t>& nodes, const std::vector<std::byte>& got) {
  const auto row_bytes = static_cast<std::size_t>(table.rows.row_bytes);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    ASSERT_EQ(std::memcmp(got.data() + i * row_bytes, table.bytes.data() + nodes[i] * row_bytes, row_bytes), 0)
        << "position " << i << ", node " << nodes[i];
  }
}

// A batch that names rows of a pool.
struct PooledBatch {
  explicit PooledBatch(std::vector<int64_t> of)
      : nodes(std::move(of)), on_gpu(base::upload(nodes)), row_index(nodes.size()) {}
  std::vector<int64_t> nodes;
  base::DeviceArray<int64_t> on_gpu, row_index;
};

inline void expect_rows_in_pool(const Table& table, const base::DeviceBytes& pool, const PooledBatch& batch) {
  const auto row_bytes = static_cast<std::size_t>(table.rows.row_bytes);
  const std::vector<std::byte> rows = base::download(pool);
  const std::vector<int64_t> row_index = base::download(batch.row_index);
  std::vector<std::byte> got(row_index.size() * row_bytes);
  for (std::size_t i = 0; i < row_index.size(); ++i) {
    ASSERT_LT(static_cast<std::size_t>(row_index[i] + 1) * row_bytes, rows.size() + 1);
    std::memcpy(got.data() + i * row_bytes, rows.data() + row_index[i] * table.rows.row_bytes, row_bytes);
  }
  expect_rows(table, batch.nodes, got);
}

}  // namespace cohort::cache
