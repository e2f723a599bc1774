// Element types of the rows that layers reduce, the same on host and device, and the types they are summed in.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "base/check.h"
#include "base/host_device.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace cohort::trainer {

enum class Dtype : int { kFloat32 = 0, kBfloat16, kFloat16, kFloat64 };

// The host compiler's float16.
#ifdef __aarch64__
using HostFloat16 = __fp16;
#else
using HostFloat16 = _Float16;
#endif

struct Bfloat16 {
  uint16_t bits;
};

struct Float16 {
  uint16_t bits;
};

// What elements are summed in: float32, and float64 for float64.
template <typename T>
using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

COHORT_HOST_DEVICE inline float widen(float value) { return value; }
COHORT_HOST_DEVICE inline double widen(double value) { return value; }

COHORT_HOST_DEVICE inline float widen(Bfloat16 value) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(static_cast<uint32_t>(value.bits) << 16);
#else
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
#endif
}

COHORT_HOST_DEVICE inline float widen(Float16 value) {
#ifdef __CUDA_ARCH__
  return __half2float(__ushort_as_half(value.bits));
#else
  return static_cast<float>(std::bit_cast<HostFloat16>(value.bits));
#endif
}

// Rounds a sum to an element, to the nearest, ties to even.
template <typename T>
COHORT_HOST_DEVICE T narrow(Sum<T> value) {
  if constexpr (std::is_same_v<T, Bfloat16>) {
#ifdef __CUDA_ARCH__
    return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};
#else
    const auto bits = std::bit_cast<uint32_t>(value);
    if (value != value) return {0x7FFF};
    return {static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
#endif
  } else if constexpr (std::is_same_v<T, Float16>) {
#ifdef __CUDA_ARCH__
    return {__half_as_ushort(__float2half_rn(value))};
#else
    return {std::bit_cast<uint16_t>(static_cast<HostFloat16>(value))};
#endif
  } else {
    return value;
  }
}

// Calls f(std::type_identity<T>) with the type that `dtype` names.
template <typename F>
void with_type(Dtype dtype, F&& f) {
  switch (dtype) {
    case Dtype::kFloat32:
      return f(std::type_identity<float>{});
    case Dtype::kBfloat16:
      return f(std::type_identity<Bfloat16>{});
    case Dtype::kFloat16:
      return f(std::type_identity<Float16>{});
    case Dtype::kFloat64:
      return f(std::type_identity<double>{});
  }
  base::require(false, "a dtype of layers");
}

}  // namespace cohort::trainer
