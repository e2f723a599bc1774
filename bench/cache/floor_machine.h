// A machine of host_floor_bench: what it reads, sends and receives.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/cuda_check.h"
#include "base/device.h"
#include "base/mapping.h"
#include "base/random.h"
#include "base/side_by_side.h"
#include "bench/cache/listener.h"
#include "cache/feature_fetch.h"
#include "cache/remote/row_peers.h"
#include "ibp/gpu.h"

namespace cohort::host_floor {

using namespace std::chrono_literals;
using base::cuda_check;
using Clock = std::chrono::steady_clock;

inline constexpr int64_t kRowBytes = 448, kBatchRows = 900'000, kRowsOfReply = cache::kMostBytesOfReply / kRowBytes;
inline constexpr int64_t kStagingBytes = 256 << 20;  // of page-locked memory, as a run has it for a GPU
inline constexpr auto kPatience = 30s;

enum Sent : uint32_t { kNothing, kWarm, kTable, kGathered };
inline constexpr const char* kNames[] = {"nothing", "warm", "table", "gathered"};
struct Kind {
  bool reads_host = false, receives = false;
  Sent sent = kNothing;
};
struct Seconds {
  double all = 0, host = 0, received = 0;
};

struct Options {
  std::vector<int> gpus = {0, 1};
  double host_bytes = 9e9, remote_bytes = 1e10, table_bytes = 8e9, repeats = 5;
  double connections = cache::connections_to_each(2, static_cast<int>(std::thread::hardware_concurrency()) / 2);
  double message_bytes = cache::kMostBytesOfRequest;
  int64_t num_rows() const { return static_cast<int64_t>(table_bytes) / kRowBytes; }
};

inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

inline void wait(const base::Event& event) {
  for (const auto begin = Clock::now(); !event.done(); std::this_thread::sleep_for(20us)) {
    if (Clock::now() > begin + kPatience) throw base::Error({"a GPU", "the end of its work", "none for 30 s", ""});
  }
}

// Any of the first `bound` rows of a table.
inline std::vector<uint32_t> random_rows(double bytes, int64_t bound, uint64_t seed) {
  std::vector<uint32_t> rows(static_cast<std::size_t>(bytes / kRowBytes));
#pragma omp parallel for
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = static_cast<uint32_t>(base::random_below(static_cast<uint64_t>(bound), base::key_of(seed), 0, i));
  }
  return rows;
}

// Host memory of a kind that a GPU reads, or any.
template <typename OfGpu>
struct Memory {
  Memory(bool has_gpu, std::size_t bytes) {
    if (has_gpu) {
      of_gpu = OfGpu(bytes);
    } else {
      plain = base::Mapping::zeros(bytes, "rows", "of a machine");
    }
#pragma omp parallel for
    for (std::size_t at = 0; at < bytes; at += 4096) {
      std::memset(data() + at, 1, std::min<std::size_t>(4096, bytes - at));
    }
  }
  std::byte* data() const { return plain.data() ? plain.data() : of_gpu.data(); }
  OfGpu of_gpu;
  base::Mapping plain;
};

// Lets the current GPU read rows of its machine, batch after batch.
class HostReader {
 public:
  HostReader(const std::byte* table, const Options& options, uint64_t seed) {
    std::vector<uint32_t> rows = random_rows(options.host_bytes, options.num_rows(), seed);
    std::vector<uint64_t> entries(rows.size());
    for (std::size_t first = 0; first < rows.size(); first += kBatchRows) {
      const std::size_t end = std::min(rows.size(), first + kBatchRows);
      std::sort(rows.begin() + first, rows.begin() + end);
      counts_.push_back(base::upload(std::vector<unsigned long long>{end - first}));
    }
    std::transform(rows.begin(), rows.end(), entries.begin(),
                   [](uint32_t row) { return ibp::make_entry(row * kRowBytes, kRowBytes, true); });
    entries_ = base::upload(entries);
    rows_.regions = {ibp::RegionRef{table, options.num_rows() * kRowBytes}};
    rows_.step_bytes = 64;
    next_ = base::DeviceArray<uint32_t>(counts_.size() + 1);
  }
  void start() {
    cuda_check(cudaMemsetAsync(next_.data(), 0, next_.size() * sizeof(uint32_t), stream_), "begin with the first rows");
    begun_.record(stream_);
    for (std::size_t batch = 0; batch < counts_.size(); ++batch) {
      rows_.entries = entries_.data() + batch * kBatchRows;
      rows_.count = counts_[batch].data();
      rows_.next = next_.data() + batch;
      ibp::FetchOptions options;
      options.max_sms = cache::kDefaultFetchSms;
      ibp::fetch_located(profile_, rows_, out_.data(), damaged_.data(), stream_, options);
    }
    ended_.record(stream_);
  }
  double finish() {  // seconds since it was started
    wait(ended_);
    float ms = 0;
    cuda_check(cudaEventElapsedTime(&ms, begun_, ended_), "time the rows of the host");
    unsigned long long damaged = 0;
    cuda_check(cudaMemcpy(&damaged, damaged_.data(), sizeof damaged, cudaMemcpyDeviceToHost),
               "read the fetches' error");
    base::require(damaged == ibp::kNoFetchError, "raw rows are fetched without an error");
    return 1e-3 * ms;
  }

 private:
  ibp::DeviceProfile profile_{ibp::raw_profile(kRowBytes)};
  ibp::LocatedRows rows_;
  base::DeviceArray<uint64_t> entries_;                        // of all batches
  std::vector<base::DeviceArray<unsigned long long>> counts_;  // of each
  base::DeviceArray<uint32_t> next_;
  base::DeviceArray<unsigned long long> damaged_ = base::upload(std::vector<unsigned long long>{ibp::kNoFetchError});
  base::DeviceBytes out_{kBatchRows * kRowBytes, "allocate a batch"};
  base::Stream stream_;
  base::Event begun_, ended_;
};

// Answers the requests of a connection, until it ends.
inline void serve(const cache::Socket& client, const std::byte* table) try {
  std::vector<std::byte> reply(kRowsOfReply * kRowBytes, std::byte{1});
  std::vector<uint32_t> ids;
  while (client.awaits_bytes()) {
    const cache::TimeLimit limit(kPatience);
    cache::Request request;
    client.receive(cache::bytes_of(request), limit);
    ids.resize(request.num_rows);
    client.receive(std::as_writable_bytes(std::span(ids)), limit);
    for (std::size_t first = 0; first < ids.size(); first += kRowsOfReply) {
      const std::size_t count = std::min<std::size_t>(kRowsOfReply, ids.size() - first);
      const auto row = [&](std::size_t i) { return table + ids[first + i] * kRowBytes; };
      for (std::size_t i = 0; i < count && request.table == kGathered; ++i) {
        constexpr std::size_t kAhead = 4;  // as cache/remote/row_server.cc has it
        for (int64_t at = 0; i + kAhead < count && at < kRowBytes; at += 64) __builtin_prefetch(row(i + kAhead) + at);
        std::memcpy(reply.data() + i * kRowBytes, row(i), kRowBytes);
      }
      client.send({request.table == kTable ? row(0) : reply.data(), count * kRowBytes}, limit);
    }
  }
} catch (const std::exception& error) {  // who has asked sees the connection's end
  std::fprintf(stderr, "cache_host_floor_bench: %s\n", error.what());
}

// A connection to the other machine, and memory for what comes over it.
struct Client {
  struct Slot {
    std::byte *on_host = nullptr, *on_gpu = nullptr;
    std::unique_ptr<base::Event> copied;  // null: there is no GPU
  };
  cache::Socket socket;
  std::unique_ptr<base::Stream> stream;
  std::vector<Slot> slots;  // of a message each, used in turn
  std::size_t next_slot = 0;
};

class Machine {
 public:
  Machine(const Options& options, int number)
      : gpu_(options.gpus.empty() ? -1 : options.gpus[number]),
        message_rows_(static_cast<int64_t>(options.message_bytes) / kRowBytes),
        table_(choose_gpu(), options.num_rows() * kRowBytes),
        staging_(gpu_ >= 0, kStagingBytes),
        ids_(random_rows(options.remote_bytes, options.num_rows() - kRowsOfReply, 2 + number)) {
    if (gpu_ < 0) return;
    table_.of_gpu.open_to_gpu();
    reader_ = std::make_unique<HostReader>(table_.data(), options, number);
    on_gpu_ = base::DeviceBytes(kStagingBytes);
  }

  const std::byte* table() const { return table_.data(); }
  std::vector<Client>& clients() { return clients_; }
  void connect(const Listener& other, int num_connections) {
    choose_gpu();
    const int64_t slot_bytes = message_rows_ * kRowBytes, num_slots = kStagingBytes / slot_bytes / num_connections;
    for (int64_t i = 0; i < num_connections; ++i) {
      Client& client = clients_.emplace_back(
          cache::Socket::connect("127.0.0.1", other.port, "the other machine", "", cache::TimeLimit(kPatience)));
      if (gpu_ >= 0) client.stream = std::make_unique<base::Stream>();
      for (int64_t at = i * num_slots * slot_bytes; std::ssize(client.slots) < num_slots; at += slot_bytes) {
        auto copied = gpu_ < 0 ? nullptr : std::make_unique<base::Event>(cudaEventDisableTiming);
        client.slots.push_back({staging_.data() + at, on_gpu_.data() + at, std::move(copied)});
      }
    }
  }

  // The seconds of its parts.
  Seconds run(const Kind& kind) {
    choose_gpu();
    Seconds seconds;
    if (kind.reads_host) reader_->start();
    const auto begin = Clock::now();
    next_ = 0;
    if (kind.receives) base::side_by_side(clients_.size(), [&](std::size_t i) { receive(clients_[i], kind.sent); });
    seconds.received = seconds_since(begin);
    if (kind.reads_host) seconds.host = reader_->finish();
    return seconds;
  }

 private:
  bool choose_gpu() const {
    if (gpu_ >= 0) base::choose_gpu(gpu_);
    return gpu_ >= 0;
  }

  // Messages over a connection, until all connections together have had all rows.
  void receive(Client& client, Sent sent) {
    choose_gpu();
    const cache::TimeLimit limit(kPatience);
    std::deque<int64_t> under_way;  // rows of each message
    const auto end_oldest = [&] {
      const Client::Slot& slot = client.slots[client.next_slot++ % client.slots.size()];
      const std::size_t bytes = under_way.front() * kRowBytes;
      under_way.pop_front();
      if (slot.copied) wait(*slot.copied);
      if (sent != kNothing) client.socket.receive({slot.on_host, bytes}, limit);
      if (!slot.copied) return;
      cuda_check(cudaMemcpyAsync(slot.on_gpu, slot.on_host, bytes, cudaMemcpyHostToDevice, *client.stream));
      slot.copied->record(*client.stream);
    };
    for (int64_t first; (first = next_.fetch_add(message_rows_)) < std::ssize(ids_);) {
      const auto ids = std::span(ids_).subspan(first, std::min(message_rows_, std::ssize(ids_) - first));
      cache::Request request;
      request.table = sent;
      request.num_rows = static_cast<uint32_t>(ids.size());
      if (sent != kNothing) client.socket.send(cache::bytes_of(request), limit, true);
      if (sent != kNothing) client.socket.send(std::as_bytes(ids), limit);
      under_way.push_back(std::ssize(ids));
      if (under_way.size() == cache::kRequestsOfConnection) end_oldest();
    }
    while (!under_way.empty()) end_oldest();
    for (const Client::Slot& slot : client.slots) {
      if (slot.copied) wait(*slot.copied);
    }
  }

  int gpu_;  // -1: none
  int64_t message_rows_;
  Memory<base::HostTable> table_;
  Memory<base::PinnedBytes> staging_;
  std::vector<uint32_t> ids_;  // of all rows of the other machine
  std::unique_ptr<HostReader> reader_;
  base::DeviceBytes on_gpu_;
  std::vector<Client> clients_;
  std::atomic<int64_t> next_ = 0;  // of ids_
};

}  // namespace cohort::host_floor
