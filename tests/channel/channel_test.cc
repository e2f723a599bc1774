#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <functional>
#include <initializer_list>

#include "base/format.h"
#include "base/process.h"
#include "channel/inspect.h"
#include "tests/base/fails.h"
#include "tests/channel/channel_folder.h"

namespace cohort::channel {
namespace {

TEST_F(Channel, IsVisibleOnlyOnceAnnounced) {
  Publisher publisher(folder_, options());
  EXPECT_THROW(Subscriber{folder_}, base::Error);
  publisher.announce();
  EXPECT_NO_THROW(Subscriber{folder_});
}

TEST_F(Channel, HandsBatchesOverInOrderAndGrowsSlots) {
  Both both(folder_, options());
  auto& [publisher, subscriber, pass] = both;
  EXPECT_EQ(publisher.next_request()->pass, pass);
  for (int64_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(publish(publisher, pass, 100 * (i + 1), i));
    const HeldBatch held = subscriber.next(pass, kLimitUs);
    EXPECT_EQ(held.batch->sequence, static_cast<uint64_t>(i));
    EXPECT_EQ(first_id(held), i);
    subscriber.release(held.slot, nullptr);
  }
}

TEST_F(Channel, BatchesOfACancelledPassAreDropped) {
  Announced publisher(folder_, options());
  Subscriber subscriber(folder_);
  const uint64_t first = subscriber.request({});
  ASSERT_TRUE(publish(publisher, first, 8, 1));
  const uint64_t second = subscriber.request({});
  subscriber.cancel_below(second);
  EXPECT_FALSE(publish(publisher, first, 8, 2));
  ASSERT_TRUE(publish(publisher, second, 8, 3));
  EXPECT_EQ(first_id(subscriber.next(second, kLimitUs)), 3);
}

// Overwrites a number in the file of a channel.
template <typename T>
void poke(const std::filesystem::path& folder, std::size_t offset, T value) {
  std::fstream file(folder / "channel", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(offset));
  file.write(reinterpret_cast<const char*>(&value), sizeof value);
}

TEST_F(Channel, RefusesAnotherVersionNamingBoth) {
  Announced publisher(folder_, options());
  poke(folder_, offsetof(ChannelHeader, version), uint32_t{77});
  EXPECT_TRUE(
      base::fails_with([&] { Subscriber subscriber(folder_); }, {"0x4d", base::format("version {:#x}", kVersion)}));
}

TEST_F(Channel, AStoppedTrainerIsToldWhatTheSamplerSaid) {
  Both both(folder_, options());
  auto& [publisher, subscriber, pass] = both;
  publisher.leave_error("another rank has failed");
  publisher.stop_flag().store(1);
  EXPECT_TRUE(base::fails_with<PeerLost>([&] { both.subscriber.next(both.pass, kLimitUs); },
                                         {"it said: another rank has failed"}));
}

TEST_F(Channel, RefusesABatchThatDoesNotLieInItsSlot) {
  constexpr std::size_t kBatch = sizeof(ChannelHeader) + offsetof(Slot, batch);
  const std::size_t fields[] = {kBatch + offsetof(Batch, num_nodes), kBatch + offsetof(Batch, num_edges),
                                kBatch + offsetof(Batch, nodes[0].x_offset), kBatch + offsetof(Batch, n_id_offset),
                                kBatch + offsetof(Batch, indptr_offset)};
  for (const std::size_t field : fields) {
    const std::filesystem::path folder = folder_ / std::to_string(field);
    std::filesystem::create_directory(folder);
    Both both(folder, options());
    auto& [publisher, subscriber, pass] = both;
    ASSERT_TRUE(publish(publisher, pass, 8, 1));
    poke(folder, field, int64_t{1} << 60);
    EXPECT_THROW(subscriber.next(pass, kLimitUs), base::Error) << field;
  }
}

// A channel of two types, the first without features, and one relation from the first to the second.
ChannelOptions typed_options(ChannelOptions options) {
  options.tables = {{0, 0, 0}, {4, (2u << 8) | 32, 0}};
  options.target_types = {1};
  options.label_type = 1;
  return options;
}

// 3 nodes of type 0, 2 seeds of type 1 and 3 edges.
Batch batch_of_types(uint64_t pass) {
  Batch batch{};
  batch.pass = pass;
  batch.num_hops = 1;
  batch.num_nodes = 5;
  batch.num_edges = batch.num_local_edges = batch.edges[0].per_hop[0] = 3;
  batch.num_seeds = batch.num_labels = batch.nodes[1].per_hop[0] = 2;
  batch.nodes[0].per_hop[1] = 3;
  return batch;
}

// `damage` is done to the batch before it is published.
void publish_types(
    Publisher& publisher, uint64_t pass, const std::function<void(Batch&)>& damage = [](Batch&) {}) {
  const int slot = publisher.acquire(pass).value();
  Batch batch = batch_of_types(pass);
  const std::size_t bytes = lay_out({.row_bytes = {0, 16}, .target_types = {1}}, batch);
  publisher.memory(slot, bytes, bytes);
  damage(batch);
  publisher.publish(slot, batch);
}

TEST_F(Channel, ShowsWhatABatchHasOfEachType) {
  Both both(folder_, typed_options(options()));
  auto& [publisher, subscriber, pass] = both;
  publish_types(publisher, pass);
  const Batch& batch = *subscriber.next(pass, kLimitUs).batch;
  EXPECT_EQ(nodes_of(batch, 0), 3);
  EXPECT_EQ(nodes_of(batch, 1), 2);
  EXPECT_EQ(edges_of(batch, 0), 3);
  EXPECT_EQ(num_targets(batch, 0), 0);
  EXPECT_EQ(num_targets(batch, 1), 2);
  EXPECT_EQ(num_offsets(batch, target_types_of(subscriber.header())), 3);
  EXPECT_EQ(batch.nodes[1].x_offset % 256, 0u);
}

TEST_F(Channel, RefusesTypesThatDoNotAddUpOrLieInTheSlot) {
  const auto damages = std::vector<std::function<void(Batch&)>>{
      [](Batch& batch) { batch.nodes[0].per_hop[0] = 1; },
      [](Batch& batch) { batch.nodes[0].per_hop[1] = -3; },
      [](Batch& batch) { batch.nodes[1].per_hop[0] = INT64_MAX; },
      [](Batch& batch) { batch.edges[0].per_hop[0] = 2; },
      [](Batch& batch) { batch.num_local_edges = 4; },
      [](Batch& batch) { batch.num_local_edges = -1; },
      [](Batch& batch) { batch.num_labels = 3; },
      [](Batch& batch) { batch.num_labels = -1; },
      [](Batch& batch) { batch.nodes[1].x_offset = uint64_t{1} << 40; },
      [](Batch& batch) { batch.edges[0].edge_attr_offset = uint64_t{1} << 40; },
  };
  for (std::size_t i = 0; i < damages.size(); ++i) {
    const std::filesystem::path folder = folder_ / std::to_string(i);
    std::filesystem::create_directory(folder);
    Both both(folder, typed_options(options()));
    auto& [publisher, subscriber, pass] = both;
    publish_types(publisher, pass, damages[i]);
    EXPECT_THROW(subscriber.next(pass, kLimitUs), base::Error) << i;
  }
}

TEST_F(Channel, RefusesMoreSlotsOrTypesThanThereAre) {
  Announced publisher(folder_, typed_options(options()));
  const auto refuses = [&](std::size_t offset, std::initializer_list<int32_t> values, int32_t good) {
    for (const int32_t value : values) {
      poke(folder_, offset, value);
      EXPECT_THROW(Subscriber{folder_}, base::Error) << offset << ": " << value;
    }
    poke(folder_, offset, good);
  };
  refuses(offsetof(ChannelHeader, num_slots), {-1, 0, 1, 65}, 3);
  refuses(offsetof(ChannelHeader, device), {2}, 0);
  refuses(offsetof(ChannelHeader, num_types), {-1, 0, 1, 33}, 2);
  refuses(offsetof(ChannelHeader, target_types), {2}, 1);
  EXPECT_NO_THROW(Subscriber{folder_});
}

TEST_F(Channel, RefusesASlotOfAnotherSize) {
  Both both(folder_, options());
  auto& [publisher, subscriber, pass] = both;
  ASSERT_TRUE(publish(publisher, pass, 8, 1));
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    if (entry.path().filename().string().starts_with("slot-")) std::filesystem::resize_file(entry.path(), 256);
  }
  EXPECT_THROW(subscriber.next(pass, kLimitUs), base::Error);
}

TEST_F(Channel, DescribesAnErrorThatIsNoText) {
  Announced publisher(folder_, options());
  std::array<char, kErrorBytes> bytes;
  bytes.fill('\xFF');  // without an end
  poke(folder_, offsetof(ChannelHeader, sampler) + offsetof(Party, error), bytes);
  poke(folder_, offsetof(ChannelHeader, sampler) + offsetof(Party, failed_at_us), int64_t{1});
  poke(folder_, offsetof(ChannelHeader, sampler) + offsetof(Party, stage_since_us), INT64_MIN);
  const base::Mapping opened = open_channel(folder_, base::Access::kReadOnly);
  const auto& header = *reinterpret_cast<const ChannelHeader*>(opened.data());
  EXPECT_EQ(error_of(header.sampler).size(), std::size_t{kErrorBytes});
  EXPECT_NE(describe(header).find("\"failed_at_us\": 1"), std::string::npos);
}

TEST_F(Channel, RefusesATruncatedFile) {
  Announced publisher(folder_, options());
  std::filesystem::resize_file(folder_ / "channel", 100);
  EXPECT_THROW(Subscriber{folder_}, base::Error);
}

TEST_F(Channel, AFileSystemThatIsTooSmallIsNamed) {
  EXPECT_TRUE(base::fails_with([&] { create_shared_file(folder_ / "huge", std::size_t{1} << 50); }, {"free"}));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "huge"));
}

// Runs `body` in a child process that is killed once it has announced its channel.
pid_t start_child(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    pause();
  }
  return child;
}

TEST_F(Channel, AKilledSamplerIsNamedWithItsLastStage) {
  const pid_t child = start_child([this] {
    static Publisher publisher(folder_, options());
    publisher.set_stage(Stage::kFetching, 7);
    publisher.announce();
    publisher.set_stage(Stage::kFetching, 7);
  });
  while (!std::filesystem::exists(folder_ / "channel")) usleep(1000);
  Subscriber subscriber(folder_);
  usleep(100'000);
  kill(child, SIGKILL);
  const int64_t start = base::monotonic_us();
  EXPECT_TRUE(base::fails_with<PeerLost>([&] { subscriber.next(1, kLimitUs); }, {"fetching"}));
  EXPECT_LT(base::monotonic_us() - start, 5'000'000);
  waitpid(child, nullptr, 0);
}

TEST_F(Channel, AKilledTrainerEndsTheWaitForASlot) {
  Announced publisher(folder_, options(2));
  const pid_t child = start_child([this] {
    static Subscriber subscriber(folder_);
    subscriber.request({});
  });
  ASSERT_TRUE(publisher.next_request());
  ASSERT_TRUE(publish(publisher, 1, 8, 0));
  ASSERT_TRUE(publish(publisher, 1, 8, 0));
  kill(child, SIGKILL);
  EXPECT_THROW(publish(publisher, 1, 8, 0), PeerLost);
  waitpid(child, nullptr, 0);
}

// Runs `act` in a process forked from this one, which then ends; how it ended.
int status_of_child(const std::function<void()>& act) {
  const pid_t child = fork();
  if (child == 0) {
    act();
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST_F(Channel, AChildOfTheTrainerHasNoPartInIt) {
  Announced publisher(folder_, options());
  auto subscriber = std::make_unique<Subscriber>(folder_);
  const uint64_t pass = subscriber->request({});
  ASSERT_TRUE(publish(publisher, pass, 8, 5));
  ASSERT_TRUE(publish(publisher, pass, 8, 6));
  const HeldBatch held = subscriber->next(pass, kLimitUs);
  const auto stage = subscriber->header().trainer.stage.load();
  EXPECT_EQ(status_of_child([&] {
              subscriber->release(held.slot, nullptr);
              subscriber->leave_error("of the child");
              EXPECT_THROW(subscriber->next(pass, kLimitUs), base::Error);
              EXPECT_THROW(subscriber->request({}), base::Error);
              subscriber->cancel_below(pass + 1);
              if (HasFailure()) _exit(1);
              subscriber.reset();
            }),
            0);
  EXPECT_EQ(static_cast<SlotState>(slots_of(subscriber->header())[0].state.load()), SlotState::kHeld);
  EXPECT_EQ(subscriber->header().trainer.stage.load(), stage);
  EXPECT_EQ(subscriber->header().trainer.failed_at_us.load(), 0);
  EXPECT_EQ(first_id(subscriber->next(pass, kLimitUs)), 6);
}

TEST_F(Channel, ASamplerThatReadsSeedsIsNotIdle) {
  Announced publisher(folder_, options());
  Subscriber subscriber(folder_);
  const int64_t before = subscriber.header().sampler.stage_since_us.load();
  subscriber.request({});
  ASSERT_TRUE(publisher.next_request());
  EXPECT_EQ(static_cast<Stage>(subscriber.header().sampler.stage.load()), Stage::kSampling);
  EXPECT_GT(subscriber.header().sampler.stage_since_us.load(), before);
}

TEST_F(Channel, ASilentSamplerIsReportedAfterTheLimit) {
  Announced publisher(folder_, options());
  Subscriber subscriber(folder_);
  EXPECT_THROW(subscriber.next(1, 300'000), PeerLost);
}

TEST_F(Channel, TimeInWhichNobodyWaitedIsNoSilence) {
  Announced publisher(folder_, options());
  Subscriber subscriber(folder_);
  poke(folder_, offsetof(ChannelHeader, sampler) + offsetof(Party, stage_since_us), int64_t{1});  // no pass for long
  int rounds = 0;
  const auto interrupted = [&] {
    if (++rounds == 1) usleep(1'500'000);  // as if all had been stopped
    return rounds == 2;
  };
  EXPECT_EQ(subscriber.next(1, 1'000'000, interrupted).batch, nullptr);
  EXPECT_EQ(rounds, 2);
}

TEST_F(Channel, AStageThatChangesIsNoSilence) {
  Announced publisher(folder_, options());
  Subscriber subscriber(folder_);
  int rounds = 0;
  const auto interrupted = [&] {
    publisher.set_stage(Stage::kSampling, static_cast<uint64_t>(rounds));
    return ++rounds == 4;
  };
  EXPECT_EQ(subscriber.next(1, 300'000, interrupted).batch, nullptr);
}

TEST_F(Channel, DescribesItself) {
  Announced publisher(folder_, options());
  Subscriber subscriber(folder_);
  ASSERT_TRUE(publish(publisher, 1, 8, 0));
  const std::string text = describe(subscriber.header());
  EXPECT_NE(text.find("\"state\": \"ready\""), std::string::npos) << text;
  EXPECT_NE(text.find("\"num_nodes\": 8"), std::string::npos) << text;
}

}  // namespace
}  // namespace cohort::channel
