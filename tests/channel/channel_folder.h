// A channel in a folder of its own, for tests.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "channel/publisher.h"
#include "channel/subscriber.h"

namespace cohort::channel {

inline constexpr int64_t kLimitUs = 10'000'000;

struct Announced : Publisher {
  Announced(const std::filesystem::path& folder, const ChannelOptions& options) : Publisher(folder, options) {
    announce();
  }
};

// A sampler, and a trainer that has asked for a pass.
struct Both {
  Both(const std::filesystem::path& folder, const ChannelOptions& options)
      : publisher(folder, options), subscriber(folder), pass(subscriber.request({})) {}
  Announced publisher;
  Subscriber subscriber;
  uint64_t pass;
};

class Channel : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/dev/shm/cohort-test-XXXXXX";
    folder_ = mkdtemp(name);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  ChannelOptions options(int num_slots = 3) const {
    ChannelOptions options;
    options.num_slots = num_slots;
    options.tables = {{4, (2u << 8) | 32, 0}};
    return options;
  }

  // Publishes a batch of `nodes` nodes whose n_id is filled with `mark`; false when there was no slot to be had.
  static bool publish(Publisher& publisher, uint64_t pass, int64_t nodes, int64_t mark) {
    const std::optional<int> slot = publisher.acquire(pass);
    if (!slot) return false;
    Batch batch{};
    batch.pass = pass;
    batch.num_nodes = batch.num_labels = batch.nodes[0].per_hop[0] = nodes;
    batch.num_seeds = 1;
    const std::size_t bytes = lay_out({.row_bytes = {16}}, batch);
    std::byte* data = publisher.memory(*slot, bytes, bytes);
    auto* n_id = reinterpret_cast<int64_t*>(data + batch.n_id_offset);
    std::fill(n_id, n_id + nodes, mark);
    publisher.publish(*slot, batch);
    return true;
  }

  static int64_t first_id(const HeldBatch& held) {
    return *reinterpret_cast<const int64_t*>(held.data + held.batch->n_id_offset);
  }

  std::filesystem::path folder_;
};

}  // namespace cohort::channel
