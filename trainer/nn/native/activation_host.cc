#include <algorithm>

#include "base/random_many.h"
#include "trainer/nn/native/activation_host.h"

namespace cohort::trainer {
namespace {

constexpr int64_t kFewElements = 4096;  // not worth waking threads for
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

template <Activation activation, typename T>
void drop_some(const Words& words, uint32_t below, Sum<T> scale, const T* x, int64_t count, T* out) {
  for (int64_t i = 0; i < count; ++i) {
    const Sum<T> value = activate<Sum<T>>(activation, widen(x[i])) * scale;
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
