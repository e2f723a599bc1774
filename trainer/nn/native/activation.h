// Activation and dropout in one pass, whose gradient needs nothing but what came out.
#pragma once

#include "base/gpu_stream.h"
#include "trainer/nn/native/element.h"

namespace cohort::trainer {

enum class Activation : int { kRelu = 0, kElu, kLeakyRelu };

// Of kLeakyRelu, torch's default.
constexpr double kNegativeSlope = 0.01;

// out[i] = 0 where the random number of (key, i) says so, with probability p; elsewhere f(x[i]) / (1 - p). Host and
// CUDA body drop the same elements. Of kLeakyRelu, which makes nothing 0 but zeros, these become -0.
struct DropCall {
  Dtype dtype = Dtype::kFloat32;  // of all arrays
  Activation activation = Activation::kRelu;
  int64_t size = 0;
  double p = 0;  // in [0, 1)
  uint64_t key = 0;
  const uint64_t* key_at = nullptr;  // where the key stands instead, on the device of the arrays; null: it is `key`
  const void* x = nullptr;           // [size]
  void* out = nullptr;               // [size]
};

// out[i] = grad[i] * derivative at x[i], told from y[i], what DropCall wrote: 0 where that is 0, but not
// where kLeakyRelu has made -0.
struct DropGradCall {
  Dtype dtype = Dtype::kFloat32;  // of all arrays
  Activation activation = Activation::kRelu;
  int64_t size = 0;
  double p = 0;
  const void* y = nullptr;     // [size]
  const void* grad = nullptr;  // [size]
  void* out = nullptr;         // [size]
};

void run_on_host(const DropCall& call);
void run_on_host(const DropGradCall& call);
void run_on_gpu(const DropCall& call, base::GpuStream stream);
void run_on_gpu(const DropGradCall& call, base::GpuStream stream);

}  // namespace cohort::trainer
