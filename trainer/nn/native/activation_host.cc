#include "trainer/nn/native/activation_element.h"

namespace cohort::trainer {
namespace {

constexpr int64_t kFewElements = 4096;  // not worth waking threads for

}  // namespace

void run_on_host(const DropCall& call) {
  with_type(call.dtype, [&]<typename T>(std::type_identity<T>) {
    using A = Sum<T>;
    const T* x = static_cast<const T*>(call.x);
    T* out = static_cast<T*>(call.out);
    const base::PhiloxKey key = base::key_of(call.key_at ? *call.key_at : call.key);
    const uint64_t below = drop_below(call.p);
    const A scale = A{1} / static_cast<A>(1 - call.p);
#pragma omp parallel for schedule(static) if (call.size > kFewElements)
    for (int64_t group = 0; group < (call.size + kElementsADraw - 1) / kElementsADraw; ++group) {
      const base::PhiloxCounter words = draw(key, group);
      for (int64_t k = 0; k < kElementsADraw && group * kElementsADraw + k < call.size; ++k) {
        const int64_t i = group * kElementsADraw + k;
        const A value = words.word[k] < below ? A{0} : activate<A>(call.activation, widen(x[i])) * scale;
        out[i] = narrow<T>(value);
      }
    }
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
