// Gaussian features around one centre per class.
#pragma once

#include <cstdint>
#include <span>
#include <stop_token>
#include <vector>

#include "base/random.h"
#include "dataset/generating/generate.h"

namespace cohort::dataset {

// Standard normal numbers from 32 random bits each: linear between the quantiles of a table, so that no library
// function's last bit enters a data set and tails end near 4 standard deviations.
class NormalTable {
 public:
  NormalTable();
  float operator()(uint32_t bits) const {
    const uint32_t cell = bits >> kFractionBits;
    const float fraction = static_cast<float>(bits & ((1u << kFractionBits) - 1)) * (1.0f / (1u << kFractionBits));
    return quantiles_[cell] + fraction * (quantiles_[cell + 1] - quantiles_[cell]);
  }

 private:
  static constexpr int kCellBits = 12, kFractionBits = 32 - kCellBits;
  std::vector<float> quantiles_;  // float32 [4097]
};

// The features of edges: standard normal noise, and at distance 2 from the origin one point where the ends of the edge
// have the same class, and the opposite point where they have not. Noise follows from the two ends, either way.
class EdgeFeatureGenerator {
 public:
  EdgeFeatureGenerator(uint64_t seed, int64_t dim);
  // float32 [dim]
  void write(int64_t one, int64_t other, bool same_class, float* row) const;

 private:
  NormalTable table_;
  base::PhiloxKey noise_;
  std::vector<float> centre_;  // float32 [dim]
};

// The rows of a generated data set, whichever and whenever: the centre of the node's class + standard normal noise.
// uint8 holds 128 + 32 x, rounded.
class FeatureGenerator {
 public:
  explicit FeatureGenerator(const GenerateOptions& options);
  std::size_t row_bytes() const;
  // Rows [first, first + count) in the options' dtype, at out + i * row_bytes(). labels int64 [V].
  void range(std::span<const int64_t> labels, int64_t first, int64_t count, std::byte* out,
             const std::stop_token& stop) const;
  // Rows nodes[0], nodes[1], ...
  void take(std::span<const int64_t> labels, std::span<const int64_t> nodes, std::byte* out,
            const std::stop_token& stop) const;

 private:
  template <typename NodeAt>
  void write(std::span<const int64_t> labels, int64_t count, NodeAt node_at, std::byte* out,
             const std::stop_token& stop) const;

  GenerateOptions options_;
  NormalTable table_;
  std::vector<float> centres_;  // float32 [C, D]
};

}  // namespace cohort::dataset
