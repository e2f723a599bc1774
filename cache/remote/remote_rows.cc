#include "cache/remote/remote_rows.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/bits.h"
#include "base/check.h"
#include "base/prefetch.h"

namespace cohort::cache {
namespace {

using namespace std::chrono_literals;

constexpr auto kBeyond = 2s;         // what a request says of its end goes before what the wait for it says
constexpr int64_t kSlackBytes = 64;  // behind the last row: decoders may read on

// A request to a machine: rows from `first` on, in the order of requests.
struct Ask {
  int machine = 0;
  std::size_t first = 0, count = 0;
  int64_t bytes = 0;
};

}  // namespace

int64_t reply_buffer_bytes(const ibp::EncodedRef& rows) {
  const int64_t longest = std::max(ibp::longest_coded_bytes(rows), rows.row_bytes) + int64_t{rows.plane_b_stride_bytes};
  return std::max(kMostBytesOfReply, base::round_up(longest, 4)) + kSlackBytes;
}

class RemoteRows::Job final : public ReadJob {
 public:
  Job(const RemoteRows& rows, ibp::EncodedRef stored, std::vector<uint32_t> ids, std::vector<uint32_t> order,
      std::vector<Ask> asks, TakeRow take)
      : ReadJob(asks.size()),
        file_(rows.file_),
        peers_(rows.peers_),
        table_(rows.table_),
        stored_(stored),
        plane_a_(file_->encoded.ref.plane_b && !stored.plane_b),
        ids_(std::move(ids)),
        order_(std::move(order)),
        asks_(std::move(asks)),
        take_(std::move(take)) {}

 protected:
  void read(std::size_t i, BlockBuffer& buffer) override {
    const Ask& of = asks_[i];
    const auto room = static_cast<std::size_t>(reply_buffer_bytes(stored_));
    const std::span<std::byte> to = buffer.reserve(room).first(static_cast<std::size_t>(of.bytes));
    peers_->ask(of.machine, {.table = table_, .plane_a = plane_a_ ? 1u : 0u},
                std::span(ids_).subspan(of.first, of.count), to);
  }

  void deliver(std::size_t number, BlockBuffer& buffer) override {
    const Ask& of = asks_[number];
    const std::byte* at = buffer.reserve(0).data();
    const std::span<const uint32_t> ids = std::span(ids_).subspan(of.first, of.count);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      base::ask_ahead(ids, i, [&](uint32_t next) { prefetch_place(stored_, next); });
      ibp::RowSpan span = ibp::locate(stored_, ids[i]);
      const uint32_t bytes = wire_bytes(stored_, span);
      span.begin = at;
      if (span.plane_b) span.plane_b = at + span.bytes;
      take_(order_[of.first + i], span);
      at += bytes;
    }
  }

 private:
  std::shared_ptr<const RowFile> file_;
  std::shared_ptr<RowPeers> peers_;
  uint32_t table_;
  ibp::EncodedRef stored_;
  bool plane_a_;
  std::vector<uint32_t> ids_;    // in the order of requests
  std::vector<uint32_t> order_;  // their numbers in the fetch
  std::vector<Ask> asks_;
  TakeRow take_;
};

RemoteRows::RemoteRows(std::shared_ptr<const RowFile> rows, uint32_t table, std::shared_ptr<RowPeers> peers,
                       std::shared_ptr<ReadThreads> threads)
    : FarRows(std::move(rows)), table_(table), peers_(std::move(peers)), threads_(std::move(threads)) {}

FarFetch RemoteRows::fetch(std::span<const int64_t> ids, bool plane_a, TakeRow take) const {
  if (ids.empty()) return {};
  ibp::EncodedRef stored = encoded().ref;
  if (plane_a) stored.plane_b = nullptr;
  const auto num_machines = static_cast<std::size_t>(peers_->num_machines());
  std::vector<std::vector<uint32_t>> of_machine(num_machines);  // numbers in the fetch
  for (std::size_t i = 0; i < ids.size(); ++i) {
    of_machine[static_cast<std::size_t>(owner_of(ids[i], peers_->num_machines()))].push_back(static_cast<uint32_t>(i));
  }
  base::require(of_machine[static_cast<std::size_t>(peers_->own())].empty(), "rows of other machines");
  std::vector<uint32_t> rows, order;
  rows.reserve(ids.size());
  order.reserve(ids.size());
  std::vector<std::size_t> next(num_machines);
  std::vector<Ask> asks;
  FarUse use;
  TierUse& tier = use.tiers[kRemoteTier];
  tier.rows = std::ssize(ids);
  while (order.size() < ids.size()) {  // a request to each machine in turn
    for (std::size_t machine = 0; machine < num_machines; ++machine) {
      const std::vector<uint32_t>& numbers = of_machine[machine];
      if (next[machine] == numbers.size()) continue;
      Ask& ask = asks.emplace_back(Ask{static_cast<int>(machine), order.size(), 0, 0});
      for (; next[machine] < numbers.size() && ask.count < kMostRowsOfRequest; ++next[machine], ++ask.count) {
        base::ask_ahead(numbers, next[machine], [&](uint32_t later) { prefetch_place(stored, ids[later]); });
        const uint32_t number = numbers[next[machine]];
        const ibp::RowSpan row = ibp::locate(stored, ids[number]);
        const uint32_t bytes = wire_bytes(stored, row);
        if (ask.count > 0 && ask.bytes + bytes > kMostBytesOfReply) break;
        ask.bytes += bytes;
        tier.bytes += ibp::joined_bytes(stored, row);
        rows.push_back(static_cast<uint32_t>(ids[number]));
        order.push_back(number);
      }
      use.read_bytes += ask.bytes;
    }
  }
  use.reads = std::ssize(asks);
  auto job = std::make_shared<Job>(*this, stored, std::move(rows), std::move(order), std::move(asks), std::move(take));
  threads_->start(job);
  return {std::move(job), use,
          Patience{"the rows of other machines", peers_->patience() + kBeyond, "see the logs of their samplers"}};
}

}  // namespace cohort::cache
