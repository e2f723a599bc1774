// Gaussian features around one centre per class.
#pragma once

#include <cstdint>
#include <span>
#include <stop_token>
#include <vector>

#include "base/random.h"
#include "dataset/generate.h"
#include "dataset/npy.h"

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

// Fills features [V, D] of the options' dtype: centre of the node's class + standard normal noise. uint8 holds
// 128 + 32 x, rounded. labels int64 [V].
void generate_features(const GenerateOptions& options, std::span<const int64_t> labels, MappedOutput& features,
                       const std::stop_token& stop);

}  // namespace cohort::dataset
