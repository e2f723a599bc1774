// Rows of other machines: bit for bit, from many threads at once, and clear ends where a machine is gone.
#include "cache/remote/remote_rows.h"
#include "cache/plan/row_owner.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <random>
#include <thread>

#include "tests/base/fails.h"
#include "tests/cache/file_of_rows.h"
#include "tests/cache/remote/machines.h"

namespace cohort::cache {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 20s;
constexpr int64_t kRemoteRowsOfBuffer = 3000;

struct RemoteCase {
  const char* codec;
  ibp::LayoutChoice layout;
  bool on_disk = false;  // most of each machine's part
};

class Remote : public FileOfRows, public testing::WithParamInterface<RemoteCase> {
 protected:
  Remote() : FileOfRows(GetParam().codec, GetParam().layout) {}

  // By way of a buffer, which is filled as often as it takes.
  std::vector<std::byte> staged(const FarRows& far, std::span<const uint32_t> ids, int64_t buffer_bytes) {
    std::vector<std::byte> out = room_for(ids);
    std::vector<uint64_t> memory(static_cast<std::size_t>(buffer_bytes) / sizeof(uint64_t)),
        entries(kRemoteRowsOfBuffer);
    const StageBuffer buffer{reinterpret_cast<std::byte*>(memory.data()), buffer_bytes, entries.data(),
                             kRemoteRowsOfBuffer};
    use_ = {};
    for (std::size_t first = 0; first < ids.size();) {
      StagedFetch some = far.stage(ids.subspan(first), false, buffer);
      const auto count = static_cast<std::size_t>(some.count);
      if (count == 0) throw base::Error({"a buffer", "room for a row", "none", ""});
      use_ += some.fetch.finish();
      for (const uint64_t entry : std::span(entries).first(count)) {
        EXPECT_EQ(ibp::entry_offset_bytes(entry) % kStagedAlign, 0u);
      }
      ibp::decode_stored(profile_, std::span(entries).first(count), std::as_bytes(std::span(memory)),
                         out.data() + first * rows_.table.row_bytes());
      first += count;
    }
    return out;
  }
  // That may be asked for where memory does not hold them.
  std::vector<int64_t> far_ids(std::size_t count, int machine, int num_machines) const {
    std::vector<int64_t> ids = random_ids(count);
    std::erase_if(ids, [&](int64_t id) { return !GetParam().on_disk && owner_of(id, num_machines) == machine; });
    return ids;
  }

  std::shared_ptr<const HostRows> mapped_ = map();
};

TEST_P(Remote, GivesTheRowsBackBitForBit) {
  const Machines machines(mapped_, 3, kPatience, GetParam().on_disk);
  for (const std::size_t count : {std::size_t{1}, std::size_t{700}, std::size_t{kNumRows}}) {
    const std::vector<int64_t> ids = random_ids(count);
    for (int machine = 0; machine < 3; ++machine) {
      const Machines::One& one = machines.all[static_cast<std::size_t>(machine)];
      EXPECT_EQ(fetched(*one.rows, ids), expected(ids));
      const base::TierUse &remote = use_.tiers[kRemoteTier], &disk = use_.tiers[kDiskTier];
      EXPECT_EQ(remote.rows, std::ranges::count_if(ids, [&](int64_t id) { return owner_of(id, 3) != machine; }));
      EXPECT_EQ(disk.rows,
                GetParam().on_disk
                    ? std::ranges::count_if(ids, [&](int64_t id) { return owner_of(id, 3) == machine && id % 3 != 0; })
                    : 0);
      EXPECT_EQ(use_.rows() + host_.rows, std::ssize(ids));
      EXPECT_EQ(remote.bytes + disk.bytes + host_.bytes, mapped_->stored_bytes(ids));
      EXPECT_GE(use_.read_bytes, remote.bytes + disk.bytes);
    }
  }
  EXPECT_TRUE(fetched(*machines.all[0].rows, {}).empty());
}

TEST_P(Remote, GivesPlaneAAloneWhereThatIsAskedFor) {
  const Machines machines(mapped_, 2, kPatience, GetParam().on_disk);
  const std::vector<int64_t> ids = random_ids(900);
  std::vector<std::byte> coarse = room_for(ids);
  mapped_->fetch(ids, coarse.data(), true);
  for (const bool plane_a : {true, false, true}) {
    EXPECT_EQ(fetched(*machines.all[1].rows, ids, plane_a), plane_a ? coarse : expected(ids));
  }
}

// Buffers of one request and less of each machine, and of several.
TEST_P(Remote, PutsRowsIntoBuffers) {
  for (const int count : {2, 4}) {
    const Machines machines(mapped_, count, kPatience, GetParam().on_disk);
    for (const auto& [buffer_bytes, num_ids] : {std::pair{4 << 10, 400}, {64 << 10, 3000}, {1 << 20, 5000}}) {
      const std::vector<int64_t> ids = far_ids(static_cast<std::size_t>(num_ids), 1, count);
      const std::vector<uint32_t> list(ids.begin(), ids.end());
      EXPECT_EQ(staged(*machines.all[1].far, list, buffer_bytes), expected(ids));
      EXPECT_EQ(use_.rows(), std::ssize(ids));
      const base::TierUse &remote = use_.tiers[kRemoteTier], &disk = use_.tiers[kDiskTier];
      EXPECT_EQ(remote.rows, std::ranges::count_if(ids, [&](int64_t id) { return owner_of(id, count) != 1; }));
      EXPECT_EQ(remote.bytes + disk.bytes, mapped_->stored_bytes(ids));
    }
  }
}

// Nothing is written to the buffer any more.
TEST_P(Remote, GivesUpAFetchIntoABuffer) {
  const Machines machines(mapped_, 3, kPatience, GetParam().on_disk);
  const std::vector<int64_t> ids = far_ids(kNumRows, 0, 3);
  const std::vector<uint32_t> list(ids.begin(), ids.end());
  for (int i = 0; i < 10; ++i) {
    std::vector<uint64_t> memory(1 << 17), entries(kRemoteRowsOfBuffer);
    const StageBuffer buffer{reinterpret_cast<std::byte*>(memory.data()), 1 << 20, entries.data(), kRemoteRowsOfBuffer};
    machines.all[0].far->stage(list, false, buffer);
    std::ranges::fill(memory, 7u);
    EXPECT_EQ(std::ranges::count(memory, 7u), std::ssize(memory));
  }
  EXPECT_EQ(staged(*machines.all[0].far, list, 1 << 20), expected(ids));
}

TEST_P(Remote, NamesTheMachineOfRowsForABuffer) {
  Machines machines(mapped_, 3, kPatience, GetParam().on_disk);
  const std::vector<int64_t> ids = far_ids(2000, 0, 3);
  const std::vector<uint32_t> list(ids.begin(), ids.end());
  machines.all[2].server.reset();
  EXPECT_TRUE(base::fails_with([&] { staged(*machines.all[0].far, list, 1 << 20); }, {"machine 2 at 127.0.0.1:"}));
}

// Any number of fetches of any machine, in no order.
TEST_P(Remote, FetchesSideBySide) {
  const Machines machines(mapped_, 3, kPatience, GetParam().on_disk);
  std::vector<std::thread> threads;
  std::atomic<int> num_good = 0;
  for (uint64_t thread = 0; thread < 6; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937_64 random(thread);
      for (uint64_t round = 0; round < 10; ++round) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
        const std::vector<int64_t> first = random_ids(1 + random() % 1500, random()),
                                   second = random_ids(200, random());
        std::vector<std::byte> a = room_for(first), b = room_for(second);
        const TieredRows& rows = *machines.all[thread % 3].rows;
        TieredFetch fetch_a = rows.fetch(first, a.data()), fetch_b = rows.fetch(second, b.data());
        fetch_b.far.finish();
        fetch_a.far.finish();
        num_good += a == expected(first) && b == expected(second);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_good, 60);
}

// A fetch that is given up leaves the connections in order.
TEST_P(Remote, GivesUpAFetch) {
  const Machines machines(mapped_, 2, kPatience, GetParam().on_disk);
  const std::vector<int64_t> ids = random_ids(kNumRows);
  for (int i = 0; i < 10; ++i) {
    std::vector<std::byte> out = room_for(ids);
    const TieredFetch given_up = machines.all[0].rows->fetch(ids, out.data());
  }
  EXPECT_EQ(fetched(*machines.all[0].rows, ids), expected(ids));
}

TEST_P(Remote, NamesTheMachineThatHasEnded) {
  Machines machines(mapped_, 3, kPatience, GetParam().on_disk);
  const std::vector<int64_t> ids = random_ids(2000);
  EXPECT_EQ(fetched(*machines.all[0].rows, ids), expected(ids));
  machines.all[2].server.reset();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(base::fails_with([&] { fetched(*machines.all[0].rows, ids); },
                                 {"machine 2 at 127.0.0.1:", "its sampler has ended", "hint: "}));
  }
}

TEST_P(Remote, EndsWhileRowsAreAskedFor) {
  const std::vector<int64_t> ids = random_ids(kNumRows);
  std::vector<std::vector<std::byte>> out(20, room_for(ids));
  Machines machines(mapped_, 3, kPatience, GetParam().on_disk);
  std::vector<TieredFetch> fetches;
  for (std::vector<std::byte>& to : out) fetches.push_back(machines.all[1].rows->fetch(ids, to.data()));
  machines.all[1].peers->close();
  EXPECT_THROW(
      {
        for (TieredFetch& fetch : fetches) fetch.far.finish();
        fetched(*machines.all[1].rows, ids);
      },
      base::Error);
}

TEST_P(Remote, WaitsForOthersThatAskForMore) {
  Machines machines(mapped_, 3, kPatience, GetParam().on_disk);
  machines.all[0].peers->close();
  std::atomic<bool> has_ended = false;
  std::thread waiting([&] {
    machines.all[0].server->wait_for_others([] { return false; });
    has_ended = true;
  });
  const std::vector<int64_t> ids = random_ids(1000);
  for (const std::size_t machine : {1u, 2u}) {
    EXPECT_EQ(fetched(*machines.all[machine].rows, ids), expected(ids));
    EXPECT_FALSE(has_ended);
    machines.all[machine].peers->close();
  }
  waiting.join();
  EXPECT_TRUE(has_ended);
}

// The other machines are told what the disk of one has said.
TEST_P(Remote, SaysWhichDiskFailed) {
  if (!GetParam().on_disk) return;
  const auto read = [](int, void*, std::size_t, off_t) -> ssize_t {
    errno = EIO;
    return -1;
  };
  const Machines machines(mapped_, 3, kPatience, true, read);
  const std::vector<int64_t> ids = random_ids(2000);
  for (const std::size_t machine : {0u, 2u}) {
    EXPECT_TRUE(base::fails_with([&] { fetched(*machines.all[machine].rows, ids); },
                                 {"machine 1 at 127.0.0.1:", file_, "Input/output error"}));
  }
}

// Who asks has a limit: its rows are read before those of batches ahead here.
TEST_P(Remote, DoesNotWaitForWhatTheOtherReadsForItself) {
  if (!GetParam().on_disk) return;
  const auto read = [](int file, void* to, std::size_t bytes, off_t offset) -> ssize_t {
    std::this_thread::sleep_for(5ms);
    return ::pread(file, to, bytes, offset);
  };
  const std::vector<int64_t> ids = random_ids(kNumRows);
  std::vector<std::vector<std::byte>> out(50, room_for(ids));
  const Machines machines(mapped_, 2, kPatience, true, read);
  std::vector<TieredFetch> own;
  for (std::vector<std::byte>& to : out) own.push_back(machines.all[1].rows->fetch(ids, to.data()));
  int64_t asked = 1;
  while (owner_of(asked, 2) != 1 || asked % 3 == 0) ++asked;
  EXPECT_EQ(fetched(*machines.all[0].rows, {asked}), expected(std::vector{asked}));
  EXPECT_FALSE(own.back().far.done());
}

INSTANTIATE_TEST_SUITE_P(Codecs, Remote,
                         testing::Values(RemoteCase{"sparse", ibp::LayoutChoice::kPacked},
                                         RemoteCase{"exponent", ibp::LayoutChoice::kSlots},
                                         RemoteCase{"planes", ibp::LayoutChoice::kSlots},
                                         RemoteCase{"sparse", ibp::LayoutChoice::kPacked, true},
                                         RemoteCase{"exponent", ibp::LayoutChoice::kSlots, true},
                                         RemoteCase{"planes", ibp::LayoutChoice::kSlots, true}),
                         [](const auto& test) {
                           return std::string(test.param.codec) + (test.param.on_disk ? "OnDisk" : "");
                         });

}  // namespace
}  // namespace cohort::cache
