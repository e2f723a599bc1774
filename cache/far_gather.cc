#include "cache/far_gather.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/device.h"

namespace cohort::cache {
namespace {

using base::cuda_check;

constexpr int kGatherSms = 4;  // decode more than any drive or network gives

int current_gpu() {
  int gpu = 0;
  cuda_check(cudaGetDevice(&gpu), "find the current GPU");
  return gpu;
}

}  // namespace

// What a fetch has for its far rows.
struct FarGather::Fetch {
  base::PinnedBytes list, count;
  base::Event listed, decoded;
  base::Event others{cudaEventDisableTiming};   // the end of what the fetch does beside
  base::Event counted{cudaEventDisableTiming};  // the counters of all are read
  FarTarget target;
  bool is_counting = false;
  std::shared_ptr<Batch> batch;  // null: the fetch has no rows
};

class FarGather::Batch final : public StagedBatch {
 public:
  Batch(FarGather& gather, Fetch& fetch, cudaStream_t own)
      : StagedBatch(fetch.target.plane_a), gather_(gather), fetch_(fetch), own_(own) {}

 protected:
  std::optional<std::span<const uint32_t>> rows() override {
    if (!fetch_.listed.done()) return std::nullopt;
    const auto count = *reinterpret_cast<const unsigned long long*>(fetch_.count.data());
    return std::span(reinterpret_cast<const uint32_t*>(fetch_.list.data()), static_cast<std::size_t>(count));
  }

  void decode(const StagedRows& rows) override {
    const FarTarget& target = fetch_.target;
    Buffer& buffer = gather_.buffers_[rows.buffer];
    auto* count = reinterpret_cast<unsigned long long*>(buffer.count.data());
    *count = static_cast<unsigned long long>(rows.count);
    ibp::LocatedRows located;
    located.entries = reinterpret_cast<const uint64_t*>(buffer.entries.data());
    located.positions = target.positions + rows.first;
    located.count = count;
    located.regions = {ibp::RegionRef{buffer.rows.data(), static_cast<int64_t>(buffer.rows.bytes())}};
    located.step_bytes = static_cast<uint32_t>(kStagedAlign);
    located.max_coded_bytes = gather_.max_coded_bytes_;
    ibp::FetchOptions options;
    options.max_sms = kGatherSms;
    options.plane_a = target.plane_a;
    ibp::fetch_located(gather_.profile_, located, target.rows, target.damaged, own_, options);
    buffer.decoded.record(own_);
  }

  void end() override { fetch_.decoded.record(own_); }

 private:
  FarGather& gather_;
  Fetch& fetch_;
  cudaStream_t own_;
};

FarGather::FarGather(const FarPart& part, std::size_t num_fetches)
    : gpu_(current_gpu()),
      in_memory_(base::upload(std::vector<uint64_t>(part.in_memory->words().begin(), part.in_memory->words().end()),
                              "copy what is in host memory to the GPU")),
      profile_(part.rows->encoded().profile),
      max_coded_bytes_(ibp::longest_coded_bytes(part.rows->encoded().ref) +
                       part.rows->encoded().ref.plane_b_stride_bytes),
      buffers_(num_stage_buffers(part.staging_bytes,
                                 std::max(part.buffer_bytes, least_buffer_bytes(part.rows->encoded().ref)))),
      reader_(
          part.rows,
          [&] {
            const auto bytes = static_cast<std::size_t>(part.staging_bytes) / buffers_.size();
            for (Buffer& buffer : buffers_) {
              buffer.rows = base::PinnedBytes(bytes);
              buffer.entries = base::PinnedBytes(bytes / kBytesOfEntry);
              buffer.count = base::PinnedBytes(sizeof(unsigned long long));
            }
            return stage(buffers_);
          }(),
          *this) {
  for (std::size_t i = 0; i < num_fetches; ++i) {
    Fetch& fetch = *fetches_.emplace_back(std::make_unique<Fetch>());
    fetch.count = base::PinnedBytes(sizeof(unsigned long long));
  }
}

FarGather::~FarGather() = default;

std::vector<StageBuffer> FarGather::stage(const std::vector<Buffer>& buffers) {
  std::vector<StageBuffer> staged;
  for (const Buffer& buffer : buffers) {
    staged.push_back({buffer.rows.data(), static_cast<int64_t>(buffer.rows.bytes()),
                      reinterpret_cast<uint64_t*>(buffer.entries.data()),
                      static_cast<int64_t>(buffer.entries.bytes() / sizeof(uint64_t))});
  }
  return staged;
}

void FarGather::enter_thread() { base::choose_gpu(gpu_); }

uint32_t* FarGather::list(std::size_t number, int64_t count) {
  Fetch& fetch = *fetches_[number];
  fetch.batch.reset();
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

void FarGather::start(std::size_t number, const FarTarget& target, cudaStream_t stream, cudaStream_t own) {
  Fetch& fetch = *fetches_[number];
  fetch.others.record(stream);
  fetch.target = target;
  fetch.is_counting = false;
  fetch.batch = std::make_shared<Batch>(*this, fetch, own);
  reader_.start(fetch.batch);
}

bool FarGather::ended(std::size_t number) {
  Fetch& fetch = *fetches_[number];
  if (!fetch.batch) return true;
  if (!fetch.batch->ended()) return false;
  if (!fetch.is_counting && fetch.decoded.done() && fetch.others.done()) {
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
  if (!fetch.batch) return {};
  const FarUse& read = fetch.batch->use();
  if (read.rows() == 0) return {};
  base::require(fetch.is_counting, "the end of a fetch before its use");
  float ms = 0;
  cuda_check(cudaEventElapsedTime(&ms, fetch.listed, fetch.decoded), "time the far rows");
  TierUses uses = read.tiers;
  for (TierUse& tier : uses) tier.us = tier.rows > 0 ? 1e3 * ms : 0;
  return uses;
}

}  // namespace cohort::cache
