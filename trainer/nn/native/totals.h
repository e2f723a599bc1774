// Sums of arrays, element by element, in one pass: out[i] = parts[0][i] + ... + parts[num_parts - 1][i] + bias[i %
// columns], added up in Sum<dtype> in this order and rounded once. Host and CUDA body give the same bits.
#pragma once

#include <array>
#include <cstdint>

#include "base/gpu_stream.h"
#include "trainer/nn/native/element.h"

namespace cohort::trainer {

constexpr int kMostParts = 8;

struct TotalsCall {
  Dtype dtype = Dtype::kFloat32;  // of all arrays
  int64_t size = 0;
  int64_t columns = 1;
  int num_parts = 0;  // 1 to kMostParts
  std::array<const void*, kMostParts> parts{};
  const void* bias = nullptr;  // [columns]; null: zeros
  void* out = nullptr;
};

void run_on_host(const TotalsCall& call);
void run_on_gpu(const TotalsCall& call, base::GpuStream stream);

}  // namespace cohort::trainer
