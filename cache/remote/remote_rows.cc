#include "cache/remote/remote_rows.h"
#include "cache/plan/row_owner.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/bits.h"
#include "base/check.h"
#include "base/prefetch.h"

namespace cohort::cache {
namespace {

using namespace std::chrono_literals;

constexpr auto kBeyond = 2s;            // what a request says of its end goes before what the wait for it says
constexpr int64_t kSlackBytes = 64;     // behind the last row: decoders may read on
constexpr int64_t kRequestsOfPeer = 4;  // at least, in a buffer: the last one of each machine is half empty

// Rows that a machine is asked for together.
struct Ask {
  int machine = 0;
  std::byte* to = nullptr;  // in a StageBuffer; null: in the thread's
  int64_t room = 0, bytes = 0;
  std::vector<uint32_t> ids{};
  std::vector<uint32_t> numbers{};  // of the rows in the fetch, unless they are staged
};

// This machine's own rows of a fetch.
struct Own {
  std::vector<int64_t> ids;
  std::vector<uint32_t> numbers;  // in the fetch
};

}  // namespace

int64_t reply_buffer_bytes(const ibp::EncodedRef& rows) {
  const int64_t longest = std::max(ibp::longest_coded_bytes(rows), rows.row_bytes) + int64_t{rows.plane_b_stride_bytes};
  return std::max(kMostBytesOfReply, base::round_up(longest, kStagedAlign)) + kSlackBytes;
}

// A fetch's rows, dealt out to requests: to each machine one after the other, each filled before the next.
class RemoteRows::Requests {
 public:
  // `buffer`: null: threads receive the rows and give them on.
  Requests(const RemoteRows& rows, bool plane_a, const StageBuffer* buffer)
      : stored(planes_of(rows.encoded().ref, plane_a)),
        peers_(*rows.peers_),
        buffer_(buffer),
        most_bytes_(buffer ? std::min(kMostBytesOfRequest, buffer->row_bytes / kRequestsOfPeer / peers_.num_machines())
                           : kMostBytesOfReply),
        filling_(static_cast<std::size_t>(peers_.num_machines()), kNone) {}

  // Row `number` of the fetch. False: there is no room for it in the buffer.
  bool add(uint32_t id, uint32_t number) {
    const ibp::RowSpan row = ibp::locate(stored, id);
    const int machine = owner_of(id, peers_.num_machines());
    const uint32_t bytes = staged_bytes(stored, row);
    Ask* const ask = room_for(machine, bytes);
    if (!ask) return false;
    if (buffer_) buffer_->entries[number] = staged_entry(stored, row, ask->to + ask->bytes - buffer_->rows);
    ask->bytes += bytes;
    if (machine == peers_.own()) {
      own.ids.push_back(id);
      own.numbers.push_back(number);
      return true;
    }
    ask->ids.push_back(id);
    if (!buffer_) ask->numbers.push_back(number);
    ++use.tiers[kRemoteTier].rows;
    use.tiers[kRemoteTier].bytes += ibp::joined_bytes(stored, row);
    use.read_bytes += bytes;
    return true;
  }

  // To machines other than this.
  std::vector<Ask> to_others() && {
    std::erase_if(asks_, [&](const Ask& ask) { return ask.machine == peers_.own(); });
    return std::move(asks_);
  }

  const ibp::EncodedRef stored;
  FarUse use{};  // of other machines' rows
  Own own;

 private:
  static constexpr std::size_t kNone = SIZE_MAX;

  Ask* room_for(int machine, uint32_t bytes) {
    std::size_t& filling = filling_[static_cast<std::size_t>(machine)];
    if (filling != kNone) {
      Ask& ask = asks_[filling];
      if (ask.bytes + bytes <= ask.room && ask.ids.size() < kMostRowsOfRequest) return &ask;
    }
    Ask ask{.machine = machine, .room = std::max<int64_t>(most_bytes_ / kStagedAlign * kStagedAlign, bytes)};
    if (buffer_) {
      ask.room = std::min(ask.room, buffer_->row_bytes - used_bytes_);
      if (ask.room < bytes) return nullptr;
      ask.to = buffer_->rows + used_bytes_;
      used_bytes_ += ask.room;
    }
    filling = asks_.size();
    return &asks_.emplace_back(std::move(ask));
  }

  const RowPeers& peers_;
  const StageBuffer* buffer_;
  int64_t most_bytes_;                // of a request
  int64_t used_bytes_ = 0;            // of the buffer
  std::vector<std::size_t> filling_;  // of asks_, by machine
  std::vector<Ask> asks_;
};

class RemoteRows::Job final : public ReadJob {
 public:
  Job(const RemoteRows& rows, ibp::EncodedRef stored, std::vector<Ask> asks, TakeRow take)
      : ReadJob(asks.size()),
        file_(rows.file_),
        peers_(rows.peers_),
        table_(rows.table_),
        stored_(stored),
        plane_a_(file_->encoded.ref.plane_b && !stored.plane_b),
        asks_(std::move(asks)),
        take_(std::move(take)) {}

 protected:
  void read(std::size_t i, BlockBuffer& buffer) override {
    const Ask& of = asks_[i];
    if (!of.to) receive(of, buffer.reserve(static_cast<std::size_t>(reply_buffer_bytes(stored_))).data());
  }

  void deliver(std::size_t i, BlockBuffer& buffer) override {
    const Ask& of = asks_[i];
    if (of.to) return receive(of, of.to);
    const std::byte* at = buffer.reserve(0).data();
    for (std::size_t row = 0; row < of.ids.size(); ++row) {
      base::ask_ahead(of.ids, row, [&](uint32_t next) { prefetch_place(stored_, next); });
      ibp::RowSpan span = ibp::locate(stored_, of.ids[row]);
      const uint32_t bytes = staged_bytes(stored_, span);
      span.begin = at;
      if (span.plane_b) span.plane_b = at + span.bytes;
      take_(of.numbers[row], span);
      at += bytes;
    }
  }

 private:
  void receive(const Ask& of, std::byte* to) const {
    peers_->ask(of.machine, {.table = table_, .plane_a = plane_a_ ? 1u : 0u}, of.ids,
                {to, static_cast<std::size_t>(of.bytes)});
  }

  std::shared_ptr<const RowFile> file_;
  std::shared_ptr<RowPeers> peers_;
  uint32_t table_;
  ibp::EncodedRef stored_;
  bool plane_a_;
  std::vector<Ask> asks_;
  TakeRow take_;
};

RemoteRows::RemoteRows(std::shared_ptr<const RowFile> rows, uint32_t table, std::shared_ptr<RowPeers> peers,
                       std::shared_ptr<ReadThreads> threads, std::shared_ptr<const DiskRows> own)
    : FarRows(std::move(rows)),
      table_(table),
      peers_(std::move(peers)),
      threads_(std::move(threads)),
      own_(std::move(own)) {}

FarFetch RemoteRows::fetch(std::span<const int64_t> ids, bool plane_a, TakeRow take) const {
  Requests requests(*this, plane_a, nullptr);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    base::ask_ahead(ids, i, [&](int64_t next) { prefetch_place(requests.stored, next); });
    requests.add(static_cast<uint32_t>(ids[i]), static_cast<uint32_t>(i));
  }
  return start(std::move(requests), plane_a, std::move(take));
}

StagedFetch RemoteRows::stage(std::span<const uint32_t> ids, bool plane_a, const StageBuffer& buffer) const {
  Requests requests(*this, plane_a, &buffer);
  const auto most = std::min(ids.size(), static_cast<std::size_t>(buffer.most_rows));
  std::size_t count = 0;
  for (; count < most; ++count) {
    base::ask_ahead(ids, count, [&](uint32_t next) { prefetch_place(requests.stored, next); });
    if (!requests.add(ids[count], static_cast<uint32_t>(count))) break;
  }
  const auto take = [stored = requests.stored, buffer](std::size_t i, const ibp::RowSpan& row) {
    ibp::copy_joined(stored, row, buffer.rows + ibp::entry_offset_bytes(buffer.entries[i]));
  };
  return {start(std::move(requests), plane_a, take), static_cast<int64_t>(count)};
}

FarFetch RemoteRows::start(Requests&& requests, bool plane_a, TakeRow take) const {
  Own own = std::move(requests.own);
  base::require(own_ || own.ids.empty(), "rows of other machines");
  FarUse use = requests.use;
  const ibp::EncodedRef stored = requests.stored;
  std::vector<Ask> asks = std::move(requests).to_others();
  FarFetch fetch;
  if (!asks.empty()) {
    use.reads = std::ssize(asks);
    auto job = std::make_shared<Job>(*this, stored, std::move(asks), take);
    threads_->start(job);
    fetch = {std::move(job), use,
             Patience{"the rows of other machines", peers_->patience() + kBeyond, "see the logs of their samplers"}};
  }
  if (!own.ids.empty()) {
    fetch.add(own_->fetch(own.ids, plane_a,
                          [take = std::move(take), numbers = std::move(own.numbers)](
                              std::size_t i, const ibp::RowSpan& row) { take(numbers[i], row); }));
  }
  return fetch;
}

}  // namespace cohort::cache
