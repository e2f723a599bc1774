#include "cache/far_gather.h"

#include <algorithm>
#include <utility>

#include "base/cuda_check.h"
#include "base/device.h"

namespace cohort::cache {
namespace {

using base::cuda_check;

constexpr int kGatherSms = 1;                // of a reader: it decodes more than any drive or network gives
constexpr std::size_t kBuffersOfReader = 8;  // at least, where there are several readers
constexpr std::size_t kMostReaders = 4;      // of a table and GPU

}  // namespace

// What a fetch has for its far rows.
struct FarGather::Fetch {
  base::PinnedBytes list, count;
  base::Event listed;
  std::vector<base::Event> decoded;             // of each reader
  base::Event others{cudaEventDisableTiming};   // the end of what the fetch does beside
  base::Event counted{cudaEventDisableTiming};  // the counters of all are read
  FarTarget target;
  bool is_counting = false;
  std::vector<std::shared_ptr<Batch>> batches;  // of each reader; none: the fetch has no rows
};

// A thread that has a part of each fetch's rows read, and its buffers.
class FarGather::Reader final : public StagedReader::Decoder {
 public:
  Reader(const FarPart& part, int gpu, std::size_t num_buffers, std::size_t buffer_bytes)
      : gpu_(gpu), buffers_(num_buffers) {
    std::vector<StageBuffer> staged;
    for (Buffer& buffer : buffers_) {
      buffer.rows = base::PinnedBytes(buffer_bytes);
      buffer.entries = base::PinnedBytes(buffer_bytes / kBytesOfEntry);
      buffer.count = base::PinnedBytes(sizeof(unsigned long long));
      staged.push_back({buffer.rows.data(), static_cast<int64_t>(buffer.rows.bytes()),
                        reinterpret_cast<uint64_t*>(buffer.entries.data()),
                        static_cast<int64_t>(buffer.entries.bytes() / sizeof(uint64_t))});
    }
    reader_ = std::make_unique<StagedReader>(part.rows, std::move(staged), *this);
  }

  void start(std::shared_ptr<Batch> batch);
  void run_on(base::Stream stream) { stream_ = std::move(stream); }
  cudaStream_t stream() const { return stream_; }
  // Decodes rows on the stream, `positions` of them and the rest as ibp::fetch_located() takes them.
  void decode(const FarGather& gather, const StagedRows& rows, const int32_t* positions, const FarTarget& target) {
    Buffer& buffer = buffers_[rows.buffer];
    auto* count = reinterpret_cast<unsigned long long*>(buffer.count.data());
    *count = static_cast<unsigned long long>(rows.count);
    ibp::LocatedRows located;
    located.entries = reinterpret_cast<const uint64_t*>(buffer.entries.data());
    located.positions = positions;
    located.count = count;
    located.regions = {ibp::RegionRef{buffer.rows.data(), static_cast<int64_t>(buffer.rows.bytes())}};
    located.step_bytes = kStagedAlign;
    located.max_coded_bytes = gather.max_coded_bytes_;
    ibp::FetchOptions options;
    options.max_sms = kGatherSms;
    options.plane_a = target.plane_a;
    ibp::fetch_located(gather.profile_, located, target.rows, target.damaged, stream_, options);
    buffer.decoded.record(stream_);
  }

 private:
  struct Buffer {
    base::PinnedBytes rows, entries, count;
    base::Event decoded{cudaEventDisableTiming};
  };
  void enter_thread() override { base::choose_gpu(gpu_); }
  bool is_free(std::size_t buffer) override { return buffers_[buffer].decoded.done(); }

  int gpu_;
  std::vector<Buffer> buffers_;
  base::Stream stream_{base::Priority::kUrgent};
  std::unique_ptr<StagedReader> reader_;  // the last: its thread uses the others
};

// The rows of a fetch that are those of a reader: some that stand together in the list.
class FarGather::Batch final : public StagedBatch {
 public:
  Batch(const FarGather& gather, Fetch& fetch, std::size_t reader)
      : StagedBatch(fetch.target.plane_a), gather_(gather), fetch_(fetch), reader_(reader) {}

 protected:
  std::optional<std::span<const uint32_t>> rows() override {
    if (!fetch_.listed.done()) return std::nullopt;
    const auto count = static_cast<std::size_t>(*reinterpret_cast<const unsigned long long*>(fetch_.count.data()));
    const std::span all(reinterpret_cast<const uint32_t*>(fetch_.list.data()), count);
    const std::size_t num_readers = gather_.readers_.size();
    first_ = count * reader_ / num_readers;
    return all.subspan(first_, count * (reader_ + 1) / num_readers - first_);
  }

  void decode(const StagedRows& rows) override {
    gather_.readers_[reader_]->decode(gather_, rows, fetch_.target.positions + first_ + rows.first, fetch_.target);
  }

  void end() override { fetch_.decoded[reader_].record(gather_.readers_[reader_]->stream()); }

 private:
  const FarGather& gather_;
  Fetch& fetch_;
  std::size_t reader_, first_ = 0;
};

void FarGather::Reader::start(std::shared_ptr<Batch> batch) { reader_->start(std::move(batch)); }

FarGather::FarGather(const FarPart& part, std::size_t num_fetches)
    : gpu_(base::current_gpu()),
      in_memory_(base::upload(part.in_memory->words(), "copy what is in host memory to the GPU")),
      profile_(part.rows->encoded().profile),
      max_coded_bytes_(ibp::longest_coded_bytes(part.rows->encoded().ref) +
                       part.rows->encoded().ref.plane_b_stride_bytes) {
  const int64_t buffer_bytes = std::max(part.buffer_bytes, least_buffer_bytes(part.rows->encoded().ref));
  const std::size_t num_buffers = num_stage_buffers(part.staging_bytes, buffer_bytes);
  const std::size_t num_readers = std::clamp(num_buffers / kBuffersOfReader, std::size_t{1}, kMostReaders);
  for (std::size_t i = 0; i < num_fetches; ++i) {
    Fetch& fetch = *fetches_.emplace_back(std::make_unique<Fetch>());
    fetch.count = base::PinnedBytes(sizeof(unsigned long long));
    fetch.decoded = std::vector<base::Event>(num_readers);
  }
  const std::size_t bytes = static_cast<std::size_t>(part.staging_bytes) / num_buffers;
  for (std::size_t i = 0; i < num_readers; ++i) {
    const std::size_t own = num_buffers * (i + 1) / num_readers - num_buffers * i / num_readers;
    readers_.push_back(std::make_unique<Reader>(part, gpu_, own, bytes));
  }
}

FarGather::~FarGather() = default;

void FarGather::run_on(const std::function<base::Stream(base::Priority)>& make_stream) {
  for (const std::unique_ptr<Reader>& reader : readers_) reader->run_on(make_stream(base::Priority::kUrgent));
}

uint32_t* FarGather::list(std::size_t number, int64_t count) {
  Fetch& fetch = *fetches_[number];
  fetch.batches.clear();
  const auto bytes = static_cast<std::size_t>(count) * sizeof(uint32_t);
  if (fetch.list.bytes() < bytes) {
    fetch.list = base::PinnedBytes();
    fetch.list = base::PinnedBytes(bytes + bytes / 4);
  }
  return reinterpret_cast<uint32_t*>(fetch.list.data());
}

void FarGather::listed(std::size_t number, const unsigned long long* count, cudaStream_t stream) {
  const Fetch& fetch = *fetches_[number];
  cuda_check(cudaMemcpyAsync(fetch.count.data(), count, sizeof *count, cudaMemcpyDeviceToHost, stream),
             "read how many rows are far");
  fetch.listed.record(stream);
}

void FarGather::start(std::size_t number, const FarTarget& target, cudaStream_t stream) {
  Fetch& fetch = *fetches_[number];
  fetch.others.record(stream);
  fetch.target = target;
  fetch.is_counting = false;
  for (std::size_t i = 0; i < readers_.size(); ++i) {
    fetch.batches.push_back(std::make_shared<Batch>(*this, fetch, i));
    readers_[i]->start(fetch.batches.back());
  }
}

bool FarGather::ended(std::size_t number) {
  Fetch& fetch = *fetches_[number];
  if (fetch.batches.empty()) return true;
  if (!std::ranges::all_of(fetch.batches, [](const auto& batch) { return batch->ended(); })) return false;
  const auto is_decoded = [&] {
    return std::ranges::all_of(fetch.decoded, [](const base::Event& event) { return event.done(); });
  };
  if (!fetch.is_counting && is_decoded() && fetch.others.done()) {
    const FarTarget& target = fetch.target;
    cuda_check(cudaMemcpyAsync(target.seen, target.counters, target.num_counters, cudaMemcpyDeviceToHost, counting_),
               "read counters");
    fetch.counted.record(counting_);
    fetch.is_counting = true;
  }
  return fetch.is_counting && fetch.counted.done();
}

TierUses FarGather::use(std::size_t number) const {
  const Fetch& fetch = *fetches_[number];
  FarUse read;
  for (const std::shared_ptr<Batch>& batch : fetch.batches) read += batch->use();
  if (read.rows() == 0) return {};
  base::require(fetch.is_counting, "the end of a fetch before its use");
  float longest_ms = 0;
  for (const base::Event& decoded : fetch.decoded) {
    float ms = 0;
    cuda_check(cudaEventElapsedTime(&ms, fetch.listed, decoded), "time the far rows");
    longest_ms = std::max(longest_ms, ms);
  }
  TierUses uses = read.tiers;
  for (TierUse& tier : uses) tier.us = tier.rows > 0 ? 1e3 * longest_ms : 0;
  return uses;
}

}  // namespace cohort::cache
