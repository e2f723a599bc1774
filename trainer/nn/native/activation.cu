#include "base/cuda_check.h"
#include "base/launch.h"
#include "trainer/nn/native/activation_element.h"

namespace cohort::trainer {
namespace {

using base::cuda_check;
using base::grid_first;
using base::kBlockThreads;

template <typename T>
struct alignas(sizeof(T) * kElementsADraw) Group {
  T value[kElementsADraw];
};

template <typename T>
__device__ Group<T> load_group(const T* from, int64_t first, int64_t size) {
  if (first + kElementsADraw <= size) return *reinterpret_cast<const Group<T>*>(from + first);
  Group<T> group{};
  for (int k = 0; k < size - first; ++k) group.value[k] = from[first + k];
  return group;
}

template <typename T>
__device__ void store_group(const Group<T>& group, T* to, int64_t first, int64_t size) {
  if (first + kElementsADraw <= size) {
    *reinterpret_cast<Group<T>*>(to + first) = group;
    return;
  }
  for (int k = 0; k < size - first; ++k) to[first + k] = group.value[k];
}

// Arrays begin at multiples of a group's bytes, as torch's memory does.
template <typename T>
__global__ void drop_kernel(const __grid_constant__ DropCall call, uint64_t below, Sum<T> scale) {
  const int64_t group = grid_first(), first = group * kElementsADraw;
  if (first >= call.size) return;
  const base::PhiloxKey key = base::key_of(call.key_at ? *call.key_at : call.key);
  Group<T> values = load_group(static_cast<const T*>(call.x), first, call.size);
  drop_group(call.activation, key, group, below, scale, values.value);
  store_group(values, static_cast<T*>(call.out), first, call.size);
}

template <typename T>
__global__ void drop_grad_kernel(const __grid_constant__ DropGradCall call, Sum<T> scale) {
  const int64_t first = grid_first() * kElementsADraw;
  if (first >= call.size) return;
  const Group<T> y = load_group(static_cast<const T*>(call.y), first, call.size);
  Group<T> grad = load_group(static_cast<const T*>(call.grad), first, call.size);
#pragma unroll
  for (int k = 0; k < kElementsADraw; ++k) {
    const Sum<T> slope = derivative<Sum<T>>(call.activation, widen(y.value[k]), scale);
    grad.value[k] = narrow<T>(widen(grad.value[k]) * slope);
  }
  store_group(grad, static_cast<T*>(call.out), first, call.size);
}

unsigned blocks_for_elements(int64_t size) {
  const int64_t groups = (size + kElementsADraw - 1) / kElementsADraw;
  return static_cast<unsigned>((groups + kBlockThreads - 1) / kBlockThreads);
}

}  // namespace

void run_on_gpu(const DropCall& call, cudaStream_t stream) {
  if (call.size == 0) return;
  with_type(call.dtype, [&]<typename T>(std::type_identity<T>) {
    const Sum<T> scale = Sum<T>{1} / static_cast<Sum<T>>(1 - call.p);
    drop_kernel<T><<<blocks_for_elements(call.size), kBlockThreads, 0, stream>>>(call, drop_below(call.p), scale);
  });
  cuda_check(cudaGetLastError(), "launch activation and dropout");
}

void run_on_gpu(const DropGradCall& call, cudaStream_t stream) {
  if (call.size == 0) return;
  with_type(call.dtype, [&]<typename T>(std::type_identity<T>) {
    const Sum<T> scale = Sum<T>{1} / static_cast<Sum<T>>(1 - call.p);
    drop_grad_kernel<T><<<blocks_for_elements(call.size), kBlockThreads, 0, stream>>>(call, scale);
  });
  cuda_check(cudaGetLastError(), "launch the gradient of activation and dropout");
}

}  // namespace cohort::trainer
