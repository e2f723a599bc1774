// What activation and dropout make of elements: one meaning for both bodies.
#pragma once

#include <cmath>

#include "base/random.h"
#include "trainer/nn/native/activation.h"

namespace cohort::trainer {

constexpr int kElementsADraw = 4;

// Random words for elements [4 group, 4 group + 4).
COHORT_HOST_DEVICE inline base::PhiloxCounter draw(base::PhiloxKey key, int64_t group) {
  const auto at = static_cast<uint64_t>(group);
  return base::philox({{static_cast<uint32_t>(at), static_cast<uint32_t>(at >> 32), 0, 0}}, key);
}

// An element whose random word is below this is dropped.
inline uint64_t drop_below(double p) { return static_cast<uint64_t>(p * 4294967296.0); }

template <typename A>
COHORT_HOST_DEVICE A activate(Activation activation, A x) {
  if (x > 0 || x != x) return x;
  if (activation == Activation::kLeakyRelu) return x == 0 ? -A{0} : x * static_cast<A>(kNegativeSlope);
  return activation == Activation::kRelu ? A{0} : std::expm1(x);
}

// Activation and dropout of the elements of one draw, in place. Bit k of the result: element k has come through, so
// that the derivative of ReLU is the scale; else it is 0.
template <typename T>
COHORT_HOST_DEVICE unsigned drop_group(Activation activation, base::PhiloxKey key, int64_t group, uint64_t below,
                                       Sum<T> scale, T* values) {
  const base::PhiloxCounter words = below > 0 ? draw(key, group) : base::PhiloxCounter{};
  unsigned kept = 0;
  for (int k = 0; k < kElementsADraw; ++k) {
    const Sum<T> value = activate<Sum<T>>(activation, widen(values[k])) * scale;
    values[k] = narrow<T>(words.word[k] < below ? Sum<T>{0} : value);
    kept |= static_cast<unsigned>(widen(values[k]) != 0) << k;
  }
  return kept;
}

// The derivative, told from what came out: f(x) * scale, or 0.
template <typename A>
COHORT_HOST_DEVICE A derivative(Activation activation, A y, A scale) {
  const bool is_leaky = activation == Activation::kLeakyRelu;
  if (y == 0 && !(is_leaky && std::signbit(y))) return 0;
  if (activation == Activation::kRelu || y > 0) return scale;
  return is_leaky ? static_cast<A>(kNegativeSlope) * scale : y + scale;
}

}  // namespace cohort::trainer
