// Figure 7: fetch and decode against the space saved. As in the paper, the mask is made up: as many invariant bits, at
// random positions, as give the saving. The other bits are random (the paper's rows are all zero).
#include <cuda_runtime.h>

#include "base/launch.h"
#include "base/random.h"
#include "bench/ibp/paper.h"

namespace cohort::ibp::paper {
namespace {

using base::cuda_check;

constexpr uint32_t kRowBytes[] = {256, 1024, 4096};
constexpr int kRuns = 21;
constexpr int64_t kTableRows = 4 * kFetchRows;

// Bytes of a coded row that saves about `percent` of it.
uint32_t coded_bytes(uint32_t row_bytes, uint32_t percent) { return (row_bytes * (100 - percent) / 100 + 3) / 4 * 4; }

// A profile under which every matching row takes exactly `bytes` bytes (FORMAT.md 4.2): a participation bit a chunk, in
// whole words, then the bits that the mask leaves.
Profile made_up_profile(uint32_t row_bytes, uint32_t bytes) {
  Profile profile = raw_profile(row_bytes / 4);
  profile.codec = Codec::kInvariant;
  profile.chunk_bytes = 4;
  const uint32_t chunks = profile.num_chunks();
  const uint32_t masked_bits = 8 * row_bytes - (8 * bytes - (chunks + 31) / 32 * 32);
  for (uint32_t c = 0; c < chunks; ++c) {
    uint64_t mask = 0;
    const uint32_t wanted = masked_bits / chunks + (c < masked_bits % chunks ? 1 : 0);
    for (uint64_t draw = 0, found = 0; found < wanted; ++draw) {
      const uint64_t bit = uint64_t{1} << base::random_below(32, base::key_of(11), c, draw);
      found += (mask & bit) == 0 ? 1 : 0;
      mask |= bit;
    }
    profile.mask.push_back(mask);
    profile.value.push_back(mask & base::random_64(base::key_of(12), c, 0));
  }
  return profile;
}

// Gives every chunk of the rows its invariant bits.
__global__ void set_bits_kernel(uint32_t* words, int64_t count, uint32_t columns, const uint64_t* mask,
                                const uint64_t* value) {
  for (int64_t i = base::grid_first(); i < count; i += base::grid_step()) {
    const auto column = static_cast<uint32_t>(i % columns);
    words[i] = (words[i] & ~static_cast<uint32_t>(mask[column])) | static_cast<uint32_t>(value[column]);
  }
}

template <typename T>
base::DeviceArray<T> upload(const std::vector<T>& values) {
  base::DeviceArray<T> array(values.size());
  cuda_check(cudaMemcpy(array.data(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return array;
}

// One row size.
class Sweep {
 public:
  Sweep(const Lines& lines, uint32_t row_bytes, int64_t num_rows)
      : lines_(lines),
        row_bytes_(row_bytes),
        num_rows_(num_rows),
        source_(static_cast<std::size_t>(num_rows) * row_bytes),
        pinned_(source_.bytes()),
        index_(random_index(kFetchRows, num_rows)),
        out_(static_cast<std::size_t>(kFetchRows) * row_bytes),
        gather_(kFetchRows) {
    fill_random(pinned_.data(), static_cast<int64_t>(pinned_.bytes()));
  }

  void run() {
    for (uint32_t percent = 0; percent <= 90; percent += 10) {
      const uint32_t bytes = coded_bytes(row_bytes_, percent);
      // Rows as long as the coded ones, not decoded: the ideal. Nothing saved: rows as they are.
      const DeviceTable plain(encode_in_place(pinned_rows(bytes), raw_profile(bytes / 4)));
      if (percent == 0) {
        for (const int sms : {16, 0}) write(0, sms, seconds(plain, sms), seconds(plain, sms));
        continue;
      }
      const EncodedRows encoded = encode(bytes);
      const DeviceTable table(encoded);
      for (const int sms : {16, 0}) {
        const double decoding = seconds(table, sms);
        require_equal_rows(source_.data(), index_.data(), out_.data(), kFetchRows, row_bytes_);
        write(bytes, sms, decoding, seconds(plain, sms));
      }
    }
  }

 private:
  RowTable pinned_rows(uint32_t bytes) const { return {pinned_.data(), num_rows_, Dtype::kBits32, bytes / 4}; }

  EncodedRows encode(uint32_t bytes) {
    const Profile profile = made_up_profile(row_bytes_, bytes);
    const auto mask = upload(profile.mask), value = upload(profile.value);
    fill_random(source_.data(), static_cast<int64_t>(source_.bytes()));
    set_bits_kernel<<<2048, base::kBlockThreads>>>(reinterpret_cast<uint32_t*>(source_.data()),
                                                   num_rows_ * (row_bytes_ / 4), row_bytes_ / 4, mask.data(),
                                                   value.data());
    cuda_check(cudaDeviceSynchronize(), "make rows");
    const RowTable rows{source_.data(), num_rows_, Dtype::kBits32, row_bytes_ / 4};
    EncodedRows encoded = encode_gpu(rows, profile, {.layout = LayoutChoice::kPacked});
    base::require(encoded.ref.max_coded_bytes == bytes, "made-up rows have the length that was asked for");
    return encoded;
  }

  double seconds(const DeviceTable& table, int sms) {
    const double median = gpu_seconds(kRuns, [&](cudaStream_t stream) {
      gather_.fetch(table, index_.data(), kFetchRows, out_.data(), stream, {.max_sms = sms});
    });
    gather_.check();
    return median;
  }

  void write(uint32_t bytes, int sms, double decoding, double ideal) {
    const double saved = bytes == 0 ? 0 : 100.0 * (row_bytes_ - bytes) / row_bytes_;
    const int64_t decoded = kFetchRows * int64_t{row_bytes_};
    lines_.write("decode", {{"row_bytes", int64_t{row_bytes_}},
                            {"saved_percent", saved},
                            {"sms", int64_t{sms > 0 ? sms : num_sms()}},
                            {"gb_per_s", gb_per_s(decoded, decoding)},
                            {"ideal_gb_per_s", gb_per_s(decoded, ideal)}});
  }

  const Lines& lines_;
  uint32_t row_bytes_;
  int64_t num_rows_;
  base::DeviceBytes source_;
  base::PinnedBytes pinned_;  // random words, seen as rows of any length
  base::DeviceArray<int64_t> index_;
  base::DeviceBytes out_;
  Gather gather_;
};

}  // namespace

void run_decode_sweep(const Lines& lines, double scale) {
  const auto num_rows = std::max<int64_t>(64, static_cast<int64_t>(static_cast<double>(kTableRows) * scale) / 64 * 64);
  for (const uint32_t row_bytes : kRowBytes) Sweep(lines, row_bytes, num_rows).run();
}

}  // namespace cohort::ibp::paper
