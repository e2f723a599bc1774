#include "cache/probe.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <numeric>

#include "base/cuda_check.h"
#include "base/format.h"
#include "base/host_memory.h"
#include "base/owners.h"
#include "base/random.h"
#include "cache/feature_fetch.h"
#include "ibp/gpu.h"

namespace cohort::cache {
namespace {

using base::cuda_check;

constexpr int64_t kNumRows = int64_t{1} << 18;  // a round reads
constexpr uint32_t kRowBytes = 512;
// A region has so many times the rows: more than the caches of a GPU hold.
constexpr int64_t kHostSpread = 7, kGpuSpread = 4;
constexpr int64_t kHostBytes = kHostSpread * kNumRows * kRowBytes, kGpuBytes = kGpuSpread * kNumRows * kRowBytes;
constexpr int kFirstRounds = 2, kLeastRounds = 5;  // the first ones wake the GPU up and are not counted

enum class ReadOrder { kAscending, kRandom };

// uint64 [kNumRows]: one of each `spread` rows that follow each other, by chance.
std::vector<uint64_t> choose_rows(int64_t spread, ReadOrder order) {
  constexpr uint64_t kChoice = 0, kPlace = 1;
  const base::PhiloxKey key = base::key_of(0);
  std::vector<uint64_t> entries(kNumRows);
  for (uint64_t i = 0; i < entries.size(); ++i) {
    const auto wide = static_cast<uint64_t>(spread);
    const uint64_t row = i * wide + base::random_below(wide, key, kChoice, i);
    entries[i] = ibp::make_entry(row * kRowBytes, kRowBytes, true);
  }
  if (order == ReadOrder::kAscending) return entries;
  for (uint64_t i = entries.size() - 1; i > 0; --i) {
    std::swap(entries[i], entries[base::random_below(i + 1, key, kPlace, i)]);
  }
  return entries;
}

std::vector<int32_t> first_numbers() {
  std::vector<int32_t> numbers(kNumRows);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

// Reads rows with the GPU that is current when it is made and used.
class Reader {
 public:
  // Bytes a second of rows in a region of kNumRows * spread of them.
  double rate(const std::byte* region, int64_t spread, ReadOrder order, double seconds) {
    const auto entries = base::upload(choose_rows(spread, order), "copy rows' places");
    ibp::LocatedRows rows;
    rows.entries = entries.data();
    rows.positions = positions_.data();
    rows.count = count_.data();
    rows.regions = {ibp::RegionRef{region, kNumRows * spread * kRowBytes}};
    rows.step_bytes = ibp::kLineBytes;
    if (order == ReadOrder::kAscending) rows.next = next_.data();
    for (int round = 0; round < kFirstRounds; ++round) time(rows);
    std::vector<double> rounds;
    for (double spent = 0; spent < seconds || rounds.size() < kLeastRounds; spent += rounds.back()) {
      rounds.push_back(time(rows));
    }
    const auto middle = rounds.begin() + static_cast<std::ptrdiff_t>(rounds.size() / 2);
    std::nth_element(rounds.begin(), middle, rounds.end());
    require_undamaged();
    return static_cast<double>(kNumRows * kRowBytes) / *middle;
  }

 private:
  // Seconds of a round.
  double time(const ibp::LocatedRows& rows) {
    cuda_check(cudaMemsetAsync(next_.data(), 0, sizeof(uint32_t), stream_), "begin a round");
    begun_.record(stream_);
    ibp::FetchOptions options;
    options.max_sms = kDefaultFetchSms;
    ibp::fetch_located(profile_, rows, out_.data(), damaged_.data(), stream_, options);
    ended_.record(stream_);
    ended_.synchronize();
    float ms = 0;
    cuda_check(cudaEventElapsedTime(&ms, begun_, ended_), "time a round");
    return 1e-3 * ms;
  }

  void require_undamaged() const {
    unsigned long long damaged = 0;
    cuda_check(cudaMemcpy(&damaged, damaged_.data(), sizeof damaged, cudaMemcpyDeviceToHost), "read the fetch's error");
    base::require(damaged == ibp::kNoFetchError, "raw rows are fetched without an error");
  }

  ibp::DeviceProfile profile_{ibp::raw_profile(kRowBytes)};
  base::DeviceArray<int32_t> positions_ = base::upload(first_numbers());
  base::DeviceArray<unsigned long long> count_ = base::upload(std::vector<unsigned long long>{kNumRows});
  base::DeviceArray<unsigned long long> damaged_ = base::upload(std::vector<unsigned long long>{ibp::kNoFetchError});
  base::DeviceArray<uint32_t> next_{1};
  base::DeviceBytes out_{kNumRows * kRowBytes, "allocate the rows of a probe"};
  base::Stream stream_;
  base::Event begun_, ended_;
};

base::PinnedBytes host_region() {
  base::demand_bytes(2 * kHostBytes, base::available_host_bytes(), "host memory",
                     " for measuring links, half of it unused", "pass the bandwidths: --bandwidth");
  return base::PinnedBytes(kHostBytes);
}

std::vector<base::Gpu> gpus_with(std::span<const int> ordinals) {
  const std::vector<base::Gpu> visible = base::visible_gpus();
  if (ordinals.empty()) return visible;
  std::vector<base::Gpu> gpus;
  for (const int ordinal : ordinals) {
    if (ordinal < 0 || ordinal >= std::ssize(visible)) {
      throw base::Error({base::format("GPU {}", ordinal), "a visible GPU", base::format("{} of them", visible.size()),
                         "look at CUDA_VISIBLE_DEVICES and nvidia-smi"});
    }
    gpus.push_back(visible[static_cast<std::size_t>(ordinal)]);
  }
  return gpus;
}

// The place in `gpus` of the first other GPU that the current one, `gpu`, can read, and now may.
std::optional<std::size_t> open_peer(int gpu, const std::vector<base::Gpu>& gpus) {
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const int other = gpus[i].ordinal;
    if (other != gpu && base::can_read_peer(gpu, other) && base::open_peer(other)) return i;
  }
  return std::nullopt;
}

}  // namespace

std::vector<GpuLinks> probe_links(std::span<const int> ordinals) {
  const std::vector<base::Gpu> gpus = gpus_with(ordinals);
  if (gpus.empty()) return {};
  const double seconds = kProbeSeconds / (3.0 * static_cast<double>(gpus.size()));
  std::vector<base::DeviceBytes> regions;
  for (const base::Gpu& gpu : gpus) {
    const base::CurrentGpu chosen(gpu.ordinal);
    regions.emplace_back(kGpuBytes, "allocate memory to read from");
  }
  const base::PinnedBytes host = host_region();
  std::vector<GpuLinks> links;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const base::CurrentGpu chosen(gpus[i].ordinal);
    Reader reader;
    GpuLinks& found = links.emplace_back();
    found.uuid = gpus[i].uuid;
    found.local = reader.rate(regions[i].data(), kGpuSpread, ReadOrder::kRandom, seconds);
    if (const auto peer = open_peer(gpus[i].ordinal, gpus)) {
      found.peer = reader.rate(regions[*peer].data(), kGpuSpread, ReadOrder::kRandom, seconds);
    }
    found.host = reader.rate(host.data(), kHostSpread, ReadOrder::kAscending, seconds);
  }
  return links;
}

}  // namespace cohort::cache
