// What a server does with strangers, and a client with answers that are none.
#include "cache/remote/row_server.h"
#include "base/checksum.h"
#include "cache/plan/row_owner.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <filesystem>
#include <functional>
#include <future>
#include <numeric>
#include <thread>

#include "tests/base/fails.h"
#include "tests/cache/remote/machines.h"
#include "tests/ibp/rows.h"

namespace cohort::cache {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kServedRows = 2000;
constexpr uint32_t kServedColumns = 32;

// A server of all rows, as machine 1 of two.
class Server : public testing::Test {
 protected:
  Server() {
    made_ = ibp::make_rows(ibp::Content::kMixed, ibp::Dtype::kFloat32, kServedColumns, kServedRows);
    rows_ = ibp::encode(made_.table, ibp::fit(made_.table, {.codec = "exponent"}).profile);
    for (int64_t row = 0; row < kServedRows; row += 2) even_.choose(row);
    even_.count();
    machines_ = addresses_of(listeners_);
    digest_ = tables_digest({{rows_}});
  }
  // Of rows 0, 2, 4, ..., which it says are rows 0, 1, 2, ... of the memory.
  void serve(std::chrono::milliseconds patience = 20s) {
    ibp::EncodedRef all = rows_.ref;
    all.num_rows = even_.num_chosen();
    ibp::EncodedRows served{rows_.profile, all, rows_.keepers};
    server_ = std::make_unique<RowServer>(std::move(listeners_[1].file), RunIdentity{kKey, 1, digest_},
                                          std::vector<ServedTable>{{served, even_.ref(), kServedRows}, {}}, patience);
  }
  RowPeers peers(const std::string& key = kKey, uint32_t digest = 0, std::chrono::milliseconds patience = 20s) {
    return {machines_, {key, 0, digest ? digest : digest_}, patience};
  }
  // What a request for rows 2 * i comes to.
  static void expect_rows(Server& test, RowPeers& client) {
    const std::vector<uint32_t> ids = {0, 2, 64};
    std::vector<std::byte> expected;
    for (const int64_t number : {0, 1, 32}) {
      const ibp::RowSpan row = ibp::locate(test.rows_.ref, number);
      std::vector<std::byte> bytes(staged_bytes(test.rows_.ref, row));
      ibp::copy_joined(test.rows_.ref, row, bytes.data());
      expected.insert(expected.end(), bytes.begin(), bytes.end());
    }
    std::vector<std::byte> got(expected.size());
    client.ask(1, {.table = 0}, ids, got);
    EXPECT_EQ(got, expected);
  }
  static void expect_error(const std::function<void()>& call, const std::string& text) {
    EXPECT_TRUE(base::fails_with(call, {"machine 1", text}));
  }
  // In place of a server: welcomes all connections, takes one request and answers as `reply` does.
  std::thread imitate(const std::function<void(const Socket&, const Request&)>& reply) {
    return std::thread([this, reply] {
      std::vector<Socket> clients;
      const TimeLimit limit(20s);
      for (int i = 0; i < connections_to_each(2); ++i) {
        clients.push_back(listeners_[1].accept());
        Hello hello;
        clients.back().receive(bytes_of(hello), limit);
        const Welcome welcome{.machine = 1};
        clients.back().send(bytes_of(welcome), limit);
      }
      Request request;
      clients.front().receive(bytes_of(request), limit);  // it asks over the first one first
      reply(clients.front(), request);
      std::byte more{};
      while (clients.front().awaits_bytes()) clients.front().receive(bytes_of(more), limit);  // until it has gone
    });
  }
  // The error of a request to such a server.
  void expect_refused(const std::string& text, const std::function<void(Reply&, std::vector<std::byte>&)>& damage) {
    std::thread imitation = imitate([&](const Socket& client, const Request& request) {
      std::vector<std::byte> rows(100, std::byte{7});
      Reply reply{.number = request.number, .bytes = 100, .checksum = base::crc32c(rows)};
      damage(reply, rows);
      client.send(bytes_of(reply), TimeLimit(20s));
      client.send(rows, TimeLimit(20s));
    });
    RowPeers client = peers();
    client.connect(20s);
    std::vector<std::byte> got(100);
    const std::vector<uint32_t> ids = {1};
    expect_error([&] { client.ask(1, {}, ids, got); }, text);
    expect_error([&] { client.ask(1, {}, ids, got); }, text);  // it is not asked again
    client.close();
    imitation.join();
  }

  ibp::Rows made_;
  ibp::EncodedRows rows_;
  RowBits even_{kServedRows};
  std::vector<Listener> listeners_ = std::vector<Listener>(2);
  std::vector<MachineAddress> machines_;
  uint32_t digest_ = 0;
  std::unique_ptr<RowServer> server_;
};

TEST(RowPeers, ConnectionsTakeHalfOfTheCores) {
  EXPECT_EQ(connections_to_each(2, 24), 12);
  EXPECT_EQ(connections_to_each(3, 48), 12);
  EXPECT_EQ(connections_to_each(2, 2), 8);     // at least
  EXPECT_EQ(connections_to_each(2, 256), 16);  // at most
  EXPECT_EQ(connections_to_each(64, 64), 8);
}

TEST_F(Server, RefusesAnotherRunAndOtherRows) {
  serve();
  RowPeers stranger = peers(std::string(kKeyBytes, 'x')), other = peers(kKey, digest_ + 1), good = peers();
  expect_error([&] { stranger.connect(20s); }, "a sampler of another run");
  expect_error([&] { other.connect(20s); }, "the same encoded rows as on this machine");
  good.connect(20s);
  expect_rows(*this, good);
}

TEST_F(Server, RefusesRowsThatItDoesNotHave) {
  serve();
  const auto refuses = [&](uint32_t table, const std::vector<uint32_t>& ids) {
    RowPeers client = peers();
    client.connect(20s);
    std::vector<std::byte> got(100);
    expect_error([&] { client.ask(1, {.table = table}, ids, got); }, "no such rows");
  };
  for (const std::vector<uint32_t>& ids : {std::vector<uint32_t>{0, 1}, {kServedRows}, {UINT32_MAX}}) refuses(0, ids);
  for (const uint32_t table : {1u, 2u, UINT32_MAX}) refuses(table, {0});
}

TEST_F(Server, GoesOnAfterStrangers) {
  serve(500ms);
  const TimeLimit limit(20s);
  const auto connected = [&] { return Socket::connect("127.0.0.1", machines_[1].port, "machine 1", "", limit); };
  std::vector<std::byte> noise(10000, std::byte{0x5a});
  connected().send(noise, limit);                      // no Hello
  connected().send(std::span(noise).first(3), limit);  // goes away within it
  const Socket silent = connected(), greedy = connected();
  const Hello hello = RunIdentity{kKey, 0, digest_}.hello();
  greedy.send(bytes_of(hello), limit);
  Welcome welcome;
  greedy.receive(bytes_of(welcome), limit);
  EXPECT_EQ(welcome.answer, Answer::kWelcome);
  const Request request{.num_rows = UINT32_MAX};
  greedy.send(bytes_of(request), limit);
  EXPECT_FALSE(greedy.awaits_bytes()) << "a request for too many rows ends the connection";
  const Socket greedier = connected();
  greedier.send(bytes_of(hello), limit);
  greedier.receive(bytes_of(welcome), limit);
  const std::vector<uint32_t> many(kMostRowsOfRequest);
  greedier.send(bytes_of(Request{.num_rows = kMostRowsOfRequest}), limit);
  greedier.send(std::as_bytes(std::span(many)), limit);
  EXPECT_FALSE(greedier.awaits_bytes()) << "so does one for too many bytes";
  EXPECT_FALSE(silent.awaits_bytes()) << "whoever says nothing is not waited for";
  RowPeers client = peers();
  client.connect(20s);
  expect_rows(*this, client);
}

// A signal wakes the thread that waits for clients, and there is none.
TEST_F(Server, EndsAfterASignal) {
  serve();
  std::this_thread::sleep_for(50ms);  // until it waits for them
  struct sigaction before {
  }, hears{};
  hears.sa_handler = [](int) {};
  sigaction(SIGUSR2, &hears, &before);
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    const pid_t thread = std::stoi(task.path().filename());
    if (thread != gettid()) syscall(SYS_tgkill, getpid(), thread, SIGUSR2);
  }
  std::this_thread::sleep_for(50ms);
  sigaction(SIGUSR2, &before, nullptr);
  const auto ended = std::async(std::launch::async, [&] { server_.reset(); });
  const bool in_time = ended.wait_for(10s) == std::future_status::ready;
  if (!in_time) Socket::connect("127.0.0.1", machines_[1].port, "machine 1", "", TimeLimit(20s));
  EXPECT_TRUE(in_time);
}

TEST_F(Server, OutlivesALackOfThreads) {
  serve();
  const TimeLimit limit(20s);
  pthread_attr_t before, huge;
  pthread_getattr_default_np(&before);
  pthread_attr_init(&huge);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, std::size_t{1} << 47), 0);  // no thread has so large a stack
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  const Socket refused = Socket::connect("127.0.0.1", machines_[1].port, "machine 1", "", limit);
  EXPECT_FALSE(refused.awaits_bytes());
  pthread_setattr_default_np(&before);
  RowPeers client = peers();
  client.connect(20s);
  expect_rows(*this, client);
}

TEST_F(Server, IsNotAskedWhereThereAreNoDescriptors) {
  RowPeers client = peers();  // a sanitizer looks at objects through a pipe: before descriptors are gone
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{0, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  expect_error([&] { client.connect(20s); }, "Too many open files");
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(Server, IsWaitedForWhileItLoads) {
  std::thread late([&] {
    std::this_thread::sleep_for(100ms);
    serve();
  });
  RowPeers client = peers();
  client.connect(20s);
  late.join();
  expect_rows(*this, client);
}

TEST_F(Server, SaysThatItLoads) {
  RowServer loading(std::move(listeners_[1].file), {kKey, 1, 0}, 20s);
  RowPeers client = peers();
  expect_error([&] { client.connect(300ms); }, "a sampler that is still loading its rows");
  std::thread late([&] {
    std::this_thread::sleep_for(300ms);
    loading.share(digest_, {{rows_, even_.ref(), kServedRows}, {}});
  });
  RowPeers another = peers();
  another.connect(20s);
  late.join();
  expect_rows(*this, another);
}

TEST_F(Server, IsNotWaitedForForEver) {
  RowPeers client = peers();
  expect_error([&] { client.connect(100ms); }, "an answer within 0.1 s");
}

TEST_F(Server, IsNamedWhereNobodyListens) {
  listeners_[1] = Listener();  // the port of before is free
  RowPeers client = peers();
  expect_error([&] { client.connect(20s); }, "a connection to the sampler of this machine");
}

// More than there may be requests under way: some wait for a connection, some for the replies of others.
TEST_F(Server, AnswersManyThreads) {
  serve();
  RowPeers client = peers();
  client.connect(20s);
  const auto ask = [&] {
    for (int i = 0; i < 50; ++i) expect_rows(*this, client);
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 3 * client.num_threads(); ++i) threads.emplace_back(ask);
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Server, SendsZerosToTimeTheNetwork) {
  serve();
  RowPeers client = peers();
  client.connect(20s);
  EXPECT_GT(client.time_bare(1), 0);
  EXPECT_GT(client.time_bare(3 * client.num_threads()), 0);
  std::vector<std::byte> zeros(kMostBytesOfRequest, std::byte{1});
  client.ask(1, {.table = kNoTable}, {}, zeros);
  EXPECT_EQ(zeros, std::vector<std::byte>(kMostBytesOfRequest));
  expect_rows(*this, client);
}

TEST_F(Server, ThatStopsIsNotWaitedForByAnyThread) {
  std::thread imitation = imitate([](const Socket&, const Request&) {});
  RowPeers client = peers(kKey, 0, 200ms);
  client.connect(20s);
  const auto ask = [&] {
    std::vector<std::byte> got(100);
    const std::vector<uint32_t> ids = {1};
    expect_error([&] { client.ask(1, {}, ids, got); }, "an answer within 0.2 s, found no answer");
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 3 * client.num_threads(); ++i) threads.emplace_back(ask);
  for (std::thread& thread : threads) thread.join();
  client.close();
  imitation.join();
}

TEST_F(Server, DamagedRepliesAreRefused) {
  expect_refused("damaged bytes", [](Reply& reply, auto&) { reply.magic ^= 1; });
  expect_refused("damaged bytes", [](Reply& reply, auto&) { ++reply.number; });
  for (const uint32_t bytes : {0u, 101u, UINT32_MAX}) {
    expect_refused("100 bytes of 1 rows, or some of them", [=](Reply& reply, auto&) { reply.bytes = bytes; });
  }
  expect_refused("damaged rows", [](Reply&, std::vector<std::byte>& rows) { rows[50] ^= std::byte{1}; });
}

TEST(OwnerOf, DealsOutAllRows) {
  for (const int machines : {2, 3, 16}) {
    std::vector<int64_t> counts(static_cast<std::size_t>(machines));
    constexpr int64_t kRows = 1 << 20;
    for (int64_t row = 0; row < kRows; ++row) ++counts.at(static_cast<std::size_t>(owner_of(row, machines)));
    for (const int64_t count : counts) {
      EXPECT_GT(count, kRows / machines * 85 / 100);
      EXPECT_LT(count, kRows / machines * 115 / 100);
    }
  }
}

TEST(TablesDigest, TellsTablesApart) {
  const ibp::Rows a = ibp::make_rows(ibp::Content::kMixed, ibp::Dtype::kFloat32, 32, 1000);
  const ibp::Rows b = ibp::make_rows(ibp::Content::kDense, ibp::Dtype::kFloat32, 32, 1000);
  const auto digest = [](const ibp::Rows& rows) {
    return tables_digest({{ibp::encode(rows.table, ibp::fit(rows.table, {.codec = "sparse"}).profile)}});
  };
  EXPECT_EQ(digest(a), digest(a));
  EXPECT_NE(digest(a), digest(b));
}

// Rows that lie in the same places, but mean something else.
TEST(TablesDigest, TellsProfilesApart) {
  const ibp::Rows made = ibp::make_rows(ibp::Content::kMixed, ibp::Dtype::kFloat32, 16, 1000);
  const auto encoded = [&](uint32_t mantissa_bits) {
    return ibp::encode(made.table, ibp::fit(made.table, {.codec = "planes", .mantissa_bits = mantissa_bits}).profile);
  };
  const ibp::EncodedRows three = encoded(3), four = encoded(4);
  EXPECT_EQ(three.ref.stride_bytes, four.ref.stride_bytes);
  EXPECT_EQ(three.ref.plane_b_stride_bytes, four.ref.plane_b_stride_bytes);
  EXPECT_NE(tables_digest({{three}}), tables_digest({{four}}));
}

}  // namespace
}  // namespace cohort::cache
