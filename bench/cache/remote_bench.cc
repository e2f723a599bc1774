// Rows of another machine over the loopback:
//   cache_remote_bench [ROWS of a fetch] [SECONDS] [MS] [GB/S] [COLUMNS] [float32|bfloat16]
// Both machines are threads of this process. Fetches as a CPU's, which are not decoded; then batches of so many rows
// through buffers, from which a GPU is pretended to decode: each buffer MS later than it could, at GB/S. Each beside
// bare replies: as many and as long as those to its requests, over as many connections, from memory as large as a fetch
// to memory as large, as plain sends and receives of it would be. Seconds of cores: of both machines together.
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <functional>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "bench/cache/listener.h"
#include "cache/plan/row_owner.h"
#include "cache/remote/remote_rows.h"
#include "cache/remote/row_server.h"
#include "cache/staged_reader.h"

namespace {

using namespace cohort;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int64_t kTableBytes = int64_t{1} << 29;  // of raw rows
constexpr int kTurns = 5;

// The rows of a table: Gaussian.
struct Shape {
  uint32_t num_columns = 128;
  bool is_bfloat16 = false;
  const char* dtype() const { return is_bfloat16 ? "bfloat16" : "float32"; }
  int64_t row_bytes() const { return int64_t{num_columns} * (is_bfloat16 ? 2 : 4); }
  int64_t num_rows() const { return kTableBytes / row_bytes(); }
};

ibp::EncodedRows make_rows(const Shape& shape) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<std::byte> values(static_cast<std::size_t>(shape.num_rows() * shape.row_bytes()));
  const std::size_t size = shape.is_bfloat16 ? 2 : 4;
  for (std::size_t at = 0; at < values.size(); at += size) {
    const auto bits = std::bit_cast<uint32_t>(normal(random));
    const uint32_t element = shape.is_bfloat16 ? bits >> 16 : bits;  // the first bytes of it are those of a bfloat16
    std::memcpy(values.data() + at, &element, size);
  }
  const ibp::RowTable table{values.data(), shape.num_rows(),
                            shape.is_bfloat16 ? ibp::Dtype::kBfloat16 : ibp::Dtype::kFloat32, shape.num_columns};
  return ibp::encode(table, ibp::fit(table, {.codec = "exponent"}).profile);
}

// Replies of a fixed size to requests of a fixed size, `count` of them at a time.
struct Bare {
  Bare(int64_t num_replies, int64_t request, int64_t reply)
      : count(num_replies),
        request_bytes(request),
        reply_bytes(reply),
        sent(static_cast<std::size_t>(count * reply_bytes), std::byte{1}),
        received(sent.size()) {
    for (int i = 0; i < cache::connections_to_each(2); ++i) {
      clients.push_back(cache::Socket::connect("127.0.0.1", listener.port, "a server", "", cache::TimeLimit(10s)));
      cache::Socket server(base::FileDescriptor(::accept(listener.file.get(), nullptr, nullptr)), "a client", "");
      threads.emplace_back([this, socket = std::move(server)] {
        std::vector<std::byte> in(static_cast<std::size_t>(request_bytes));
        while (socket.awaits_bytes()) {
          socket.receive(in, cache::TimeLimit(10s));
          socket.send(reply_of(sent, num_sent++), cache::TimeLimit(10s));
        }
      });
    }
  }
  ~Bare() {
    for (const cache::Socket& client : clients) client.shut_down();
  }
  std::span<std::byte> reply_of(std::vector<std::byte>& memory, int64_t number) const {
    return std::span(memory).subspan(static_cast<std::size_t>(number % count * reply_bytes),
                                     static_cast<std::size_t>(reply_bytes));
  }
  // All of them, over all connections.
  void ask() {
    std::atomic<int64_t> left = count;
    std::vector<std::jthread> asking;
    for (const cache::Socket& client : clients) {
      asking.emplace_back([&] {
        std::vector<std::byte> out(static_cast<std::size_t>(request_bytes));
        for (int64_t number = --left; number >= 0; number = --left) {
          client.send(out, cache::TimeLimit(10s));
          client.receive(reply_of(received, number), cache::TimeLimit(10s));
        }
      });
    }
  }
  int64_t count, request_bytes, reply_bytes;
  std::vector<std::byte> sent, received;
  std::atomic<int64_t> num_sent = 0;
  Listener listener;
  std::vector<cache::Socket> clients;
  std::vector<std::jthread> threads;
};

double core_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

struct Rate {
  double calls = 0;  // a second
  double cores = 0;  // their seconds, of a call
};

Rate rate(const std::function<void()>& call, double seconds) {
  call();
  int64_t count = 0;
  const double used = core_seconds();
  const auto begin = Clock::now();
  const auto passed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  for (; passed() < seconds; ++count) call();
  const auto calls = static_cast<double>(count);
  return {calls / passed(), (core_seconds() - used) / calls};
}

// By the calls a second, of each kind of call; the kinds take turns.
std::vector<Rate> medians(const std::vector<std::function<Rate()>>& kinds) {
  std::vector<std::vector<Rate>> all(kinds.size());
  for (int turn = 0; turn < kTurns; ++turn) {
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) all[kind].push_back(kinds[kind]());
  }
  std::vector<Rate> result;
  for (std::vector<Rate>& rates : all) {
    std::ranges::sort(rates, {}, &Rate::calls);
    result.push_back(rates[kTurns / 2]);
  }
  return result;
}

// Of calls that bring so many gigabytes each.
void print(const std::string& name, double gigabytes, const Rate& rows, const Rate& bare, int64_t requests) {
  std::cout << base::format(
      "{}: {:.2f} GB/s as stored, {:.3f} core seconds a GB; bare replies ({} requests): {:.2f} GB/s, {:.3f}; {:.0f} "
      "%\n",
      name, rows.calls * gigabytes, rows.cores / gigabytes, requests, bare.calls * gigabytes, bare.cores / gigabytes,
      100 * rows.calls / bare.calls);
}

// A GPU that decodes one buffer after the other, each so long after it was told to.
class Pretended final : public cache::StagedReader::Decoder {
 public:
  Pretended(std::size_t num_buffers, double ms, double bytes_per_second)
      : free_at_(num_buffers), late_(ms * 1e-3), bytes_per_second_(bytes_per_second) {}
  bool is_free(std::size_t buffer) override { return Clock::now() >= free_at_[buffer]; }
  void decode(std::size_t buffer, int64_t bytes) {
    const std::chrono::duration<double> takes(static_cast<double>(bytes) / bytes_per_second_);
    const auto begin = std::max(last_, Clock::now() + std::chrono::duration_cast<Clock::duration>(late_));
    free_at_[buffer] = last_ = begin + std::chrono::duration_cast<Clock::duration>(takes);
  }

 private:
  std::vector<Clock::time_point> free_at_;
  Clock::time_point last_{};
  std::chrono::duration<double> late_;
  double bytes_per_second_;
};

class Batch final : public cache::StagedBatch {
 public:
  Batch(Pretended& gpu, std::span<const uint32_t> rows, int64_t row_bytes)
      : StagedBatch(false), gpu_(gpu), rows_(rows), row_bytes_(row_bytes) {}

 protected:
  std::optional<std::span<const uint32_t>> rows() override { return rows_; }
  void decode(const cache::StagedRows& rows) override { gpu_.decode(rows.buffer, rows.count * row_bytes_); }
  void end() override {}

 private:
  Pretended& gpu_;
  std::span<const uint32_t> rows_;
  int64_t row_bytes_;
};

// Of batches of these rows of so many stored bytes each, four under way at a time. `use`: of one.
Rate staged_rate(const std::shared_ptr<const cache::FarRows>& far, const std::vector<int64_t>& ids, int64_t row_bytes,
                 std::size_t num_buffers, int64_t buffer_bytes, Pretended& gpu, double seconds, cache::FarUse& use) {
  const std::vector<uint32_t> rows(ids.begin(), ids.end());
  const int64_t most_rows = buffer_bytes / row_bytes;
  static std::vector<std::byte> memory(std::size_t{256} << 20);
  std::vector<std::vector<uint64_t>> entries(num_buffers, std::vector<uint64_t>(static_cast<std::size_t>(most_rows)));
  std::vector<cache::StageBuffer> buffers;
  for (std::size_t i = 0; i < num_buffers; ++i) {
    buffers.push_back(
        {memory.data() + static_cast<int64_t>(i) * buffer_bytes, buffer_bytes, entries[i].data(), most_rows});
  }
  cache::StagedReader reader(far, std::move(buffers), gpu);
  std::deque<std::shared_ptr<Batch>> under_way;
  const auto start = [&] {
    under_way.push_back(std::make_shared<Batch>(gpu, rows, row_bytes));
    reader.start(under_way.back());
  };
  const auto end_oldest = [&] {
    while (!under_way.front()->ended()) std::this_thread::sleep_for(20us);
    use = under_way.front()->use();
    base::require(use.rows() == std::ssize(rows), "all rows of a batch");
    under_way.pop_front();
  };
  for (int i = 0; i < 4; ++i) start();
  const auto next = [&] {
    end_oldest();
    start();
  };
  const Rate batches = rate(next, seconds);
  while (!under_way.empty()) end_oldest();
  return batches;
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t num_rows = argc > 1 ? std::atoll(argv[1]) : 100'000;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 1;
  const std::string path = std::filesystem::temp_directory_path() / base::format("remote_bench-{}.ibp", getpid());
  Shape shape;
  if (argc > 5) shape.num_columns = static_cast<uint32_t>(std::atoi(argv[5]));
  shape.is_bfloat16 = argc > 6 && std::string(argv[6]) == "bfloat16";
  const int64_t table_rows = shape.num_rows();
  ibp::save(make_rows(shape), path);
  const auto file = std::make_shared<const cache::HostRows>(
      cache::HostRows::open(path, {table_rows, shape.num_columns, shape.dtype()}, false));
  std::filesystem::remove(path);
  const ibp::EncodedRows& rows = file->encoded();
  cache::RowBits all(table_rows);
  for (int64_t row = 0; row < table_rows; ++row) all.choose(row);
  all.count();
  Listener listener;
  const std::vector<cache::MachineAddress> machines = {{"machine 0", "127.0.0.1", listener.port},
                                                       {"machine 1", "127.0.0.1", listener.port}};
  const std::string key(cache::kKeyBytes, 'k');
  const auto peers = std::make_shared<cache::RowPeers>(machines, cache::RunIdentity{key, 0, 0}, 10s);
  const cache::RowServer server(std::move(listener.file), {key, 1, 0}, {{rows, all.ref(), table_rows}}, 10s);
  peers->connect(10s);
  const auto threads = std::make_shared<cache::ReadThreads>(peers->num_threads());
  const cache::RemoteRows remote(std::make_shared<const cache::RowFile>(file), 0, peers, threads);

  std::mt19937_64 random(2);
  std::vector<int64_t> ids;
  while (std::ssize(ids) < num_rows) {
    const auto id = static_cast<int64_t>(random() % table_rows);
    if (cache::owner_of(id, 2) == 1) ids.push_back(id);
  }
  cache::FarUse use;
  const auto begun = [&] { return remote.fetch(ids, false, [](std::size_t, const ibp::RowSpan&) {}); };
  cache::FarFetch ahead = begun();  // two are under way, as in a run
  const auto fetch = [&] {
    cache::FarFetch oldest = std::exchange(ahead, begun());
    use = oldest.finish();
  };
  fetch();
  const auto bare_of = [&](const cache::FarUse& of) {
    return std::make_unique<Bare>(of.reads, (num_rows * 4) / of.reads + int64_t{sizeof(cache::Request)},
                                  of.read_bytes / of.reads);
  };
  const auto stored = static_cast<double>(use.tiers[cache::kRemoteTier].bytes) / 1e9;
  std::cout << base::format("{} rows of {} bytes, {:.0f} stored\n", num_rows, shape.row_bytes(),
                            1e9 * stored / static_cast<double>(num_rows));
  {
    const auto bare = bare_of(use);
    const std::vector<Rate> both =
        medians({[&] { return rate(fetch, seconds); }, [&] { return rate([&] { bare->ask(); }, seconds); }});
    print("fetches", stored, both[0], both[1], use.reads);
  }
  const double late_ms = argc > 3 ? std::atof(argv[3]) : 2, gigabytes = argc > 4 ? std::atof(argv[4]) : 25;
  const int64_t row_bytes = (use.tiers[cache::kRemoteTier].bytes + num_rows - 1) / num_rows;
  const auto far = std::make_shared<cache::RemoteRows>(remote);
  std::cout << base::format("buffers, each decoded {} ms late at {} GB/s:\n", late_ms, gigabytes);
  for (const auto& [count_of, mib] : {std::pair{2, 32}, std::pair{8, 8}, std::pair{8, 32}, std::pair{32, 8}}) {
    const auto buffers = static_cast<std::size_t>(count_of);
    const auto staged = [&, mib = mib](double for_seconds) {
      Pretended gpu(buffers, late_ms, 1e9 * gigabytes);
      return staged_rate(far, ids, row_bytes, buffers, int64_t{mib} << 20, gpu, for_seconds, use);
    };
    staged(0);
    const auto bare = bare_of(use);
    const std::vector<Rate> both =
        medians({[&] { return staged(seconds); }, [&] { return rate([&] { bare->ask(); }, seconds); }});
    print(base::format("{} of {} MiB", buffers, mib), stored, both[0], both[1], use.reads);
  }
}
