#include <algorithm>

#include "base/random_many.h"
#include "trainer/nn/native/activation_host.h"
#include "trainer/nn/native/host_rows.h"

namespace cohort::trainer {
namespace {

constexpr int64_t kGroupsAtOnce = 4 * base::kRandomAtOnce;
constexpr int64_t kElementsAtOnce = kGroupsAtOnce * kElementsADraw;

// The random words of elements [first, first + kElementsAtOnce), or zeros.
struct Words {
  uint32_t word[kElementsAtOnce] = {};

  void draw_from(int64_t first, base::PhiloxKey key) {
    uint64_t groups[kGroupsAtOnce];
    for (int64_t i = 0; i < kGroupsAtOnce; ++i) groups[i] = static_cast<uint64_t>(first / kElementsADraw + i);
    constexpr uint64_t kZeros[kGroupsAtOnce] = {};
    base::random_words(key, groups, kZeros, kGroupsAtOnce, word);
  }
};

// exp(x) - 1 of x <= 0 within two units in the last place, by vectors: x = n log(2) + r, and the Taylor series of r.
float expm1_below_zero(float x) {
  constexpr float kLeast = -87.0f, kLog2Head = 0.693359375f, kLog2Tail = -2.12194440e-4f;  // -1 below the first
  constexpr float kRounds = 0x1.8p23f;  // a float of this size has no digits behind the point
  const float from = x < kLeast ? kLeast : x;
  const float n = (from * 1.44269504f + kRounds) - kRounds;
  const float r = (from - n * kLog2Head) - n * kLog2Tail;
  float series = 1.0f / 5040;
  for (const float factor : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f}) series = series * r + factor;
  const float power = std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
  return power * (r + r * r * series) + (power - 1);
}

template <Activation activation, typename A>
A activated(A x) {
  if constexpr (activation == Activation::kElu && std::is_same_v<A, float>) {
    const float low = expm1_below_zero(x > 0 ? 0 : x);
    return x > 0 || x != x ? x : low;
  }
  return activate<A>(activation, x);
}

template <Activation activation, typename T>
void drop_some(const Words& words, uint32_t below, Sum<T> scale, const T* x, int64_t count, T* out) {
  for (int64_t i = 0; i < count; ++i) {
    const Sum<T> value = activated<activation, Sum<T>>(widen(x[i])) * scale;
    out[i] = narrow<T>(words.word[i] < below ? Sum<T>{0} : value);
  }
}

template <typename T>
void note_kept(const T* out, int64_t count, uint8_t* kept) {
  for (int64_t group = 0; group < count / kElementsADraw; ++group) {
    unsigned bits = 0;
    for (int k = 0; k < kElementsADraw; ++k) {
      bits |= static_cast<unsigned>(widen(out[group * kElementsADraw + k]) != 0) << k;
    }
    kept[group] = static_cast<uint8_t>(bits);
  }
}

}  // namespace

template <typename T>
void drop_elements(Activation activation, base::PhiloxKey key, uint64_t below, Sum<T> scale, const T* x, int64_t size,
                   T* out, uint8_t* kept) {
#pragma omp parallel if (size > kFewElements)
  {
    Words words;
#pragma omp for schedule(static)
    for (int64_t first = 0; first < size; first += kElementsAtOnce) {
      const int64_t count = std::min(kElementsAtOnce, size - first);
      if (below > 0) words.draw_from(first, key);
      const auto drop = [&]<Activation kind>() {
        drop_some<kind>(words, static_cast<uint32_t>(below), scale, x + first, count, out + first);
      };
      switch (activation) {
        case Activation::kRelu:
          drop.template operator()<Activation::kRelu>();
          break;
        case Activation::kElu:
          drop.template operator()<Activation::kElu>();
          break;
        case Activation::kLeakyRelu:
          drop.template operator()<Activation::kLeakyRelu>();
          break;
      }
      if (kept) note_kept(out + first, count, kept + first / kElementsADraw);
    }
  }
}

#define COHORT_INSTANTIATE(T) \
  template void drop_elements(Activation, base::PhiloxKey, uint64_t, Sum<T>, const T*, int64_t, T*, uint8_t*);
COHORT_INSTANTIATE(float)
COHORT_INSTANTIATE(double)
COHORT_INSTANTIATE(Bfloat16)
COHORT_INSTANTIATE(Float16)
#undef COHORT_INSTANTIATE

void run_on_host(const DropCall& call) {
  with_type(call.dtype, [&]<typename T>(std::type_identity<T>) {
    const base::PhiloxKey key = base::key_of(call.key_at ? *call.key_at : call.key);
    const Sum<T> scale = Sum<T>{1} / static_cast<Sum<T>>(1 - call.p);
    drop_elements(call.activation, key, drop_below(call.p), scale, static_cast<const T*>(call.x), call.size,
                  static_cast<T*>(call.out), nullptr);
  });
}

void run_on_host(const DropGradCall& call) {
  with_type(call.dtype, [&]<typename T>(std::type_identity<T>) {
    using A = Sum<T>;
    const T *y = static_cast<const T*>(call.y), *grad = static_cast<const T*>(call.grad);
    T* out = static_cast<T*>(call.out);
    const A scale = A{1} / static_cast<A>(1 - call.p);
#pragma omp parallel for schedule(static) if (call.size > kFewElements)
    for (int64_t i = 0; i < call.size; ++i) {
      out[i] = narrow<T>(widen(grad[i]) * derivative<A>(call.activation, widen(y[i]), scale));
    }
  });
}

}  // namespace cohort::trainer
