// One warp on the CPU: what device code of ibp/ uses of CUDA, for 32 fibers that take turns. To be included before the
// device code, in files that no CUDA compiler sees.
#pragma once

#include <ucontext.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <type_traits>
#include <vector>

#define __device__

struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
struct alignas(8) uint2 {
  uint32_t x, y;
};
#define __align__(bytes) alignas(bytes)

namespace cohort::ibp::warp {

inline struct Lanes {
  struct Index {
    uint32_t x = 0;
  };
  std::array<ucontext_t, 32> fibers;
  ucontext_t scheduler;
  std::array<std::array<uint64_t, 32>, 2> values;  // of the collective under way and of the one before
  std::array<uint32_t, 32> count{};                // collectives that each lane has reached
  std::array<bool, 32> done{};
  Index lane;
  const std::function<void()>* body = nullptr;
} lanes;

// What all lanes give to a collective, once all of them have reached it.
inline const std::array<uint64_t, 32>& meet(uint64_t mine) {
  const uint32_t lane = lanes.lane.x;
  std::array<uint64_t, 32>& values = lanes.values[lanes.count[lane]++ % 2];
  values[lane] = mine;
  swapcontext(&lanes.fibers[lane], &lanes.scheduler);
  return values;
}

inline void run_lane() {
  (*lanes.body)();
  lanes.done[lanes.lane.x] = true;
}

// Runs `body` by the 32 lanes of a warp. All of them must reach the same collectives; else this ends the program.
inline void run(const std::function<void()>& body) {
  constexpr std::size_t kStackBytes = std::size_t{1} << 17;
  static std::vector<char> stacks(32 * kStackBytes);
  lanes.body = &body;
  lanes.count = {};
  lanes.done = {};
  for (uint32_t lane = 0; lane < 32; ++lane) {
    ucontext_t& fiber = lanes.fibers[lane];
    getcontext(&fiber);
    fiber.uc_stack = {stacks.data() + lane * kStackBytes, 0, kStackBytes};
    fiber.uc_link = &lanes.scheduler;
    makecontext(&fiber, &run_lane, 0);
  }
  while (!lanes.done[0]) {
    for (uint32_t lane = 0; lane < 32; ++lane) {
      lanes.lane.x = lane;
      swapcontext(&lanes.scheduler, &lanes.fibers[lane]);
      if (lanes.done[lane] != lanes.done[0] || lanes.count[lane] != lanes.count[0]) std::abort();
    }
  }
}

}  // namespace cohort::ibp::warp

#define threadIdx (::cohort::ibp::warp::lanes.lane)

inline uint32_t min(uint32_t a, uint32_t b) { return a < b ? a : b; }
inline uint32_t __popc(uint32_t word) { return static_cast<uint32_t>(__builtin_popcount(word)); }
inline uint32_t __popcll(uint64_t word) { return static_cast<uint32_t>(__builtin_popcountll(word)); }
inline uint32_t __ffs(uint32_t word) { return static_cast<uint32_t>(__builtin_ffs(static_cast<int>(word))); }
inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift) {
  return static_cast<uint32_t>((uint64_t{high} << 32 | low) >> (shift % 32));
}
// Byte i of the result: of the eight bytes of `low` and `high` the one that nibble i of `selector` names.
inline uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t selector) {
  const uint64_t bytes = uint64_t{high} << 32 | low;
  uint32_t result = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    result |= static_cast<uint32_t>(bytes >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  }
  return result;
}
template <typename T>
T __ldg(const T* from) {
  return *from;
}

inline void __syncwarp() { cohort::ibp::warp::meet(0); }
inline uint32_t __ballot_sync(uint32_t, bool value) {
  uint32_t ballot = 0;
  const auto& values = cohort::ibp::warp::meet(value);
  for (uint32_t lane = 0; lane < 32; ++lane) ballot |= static_cast<uint32_t>(values[lane]) << lane;
  return ballot;
}
inline bool __all_sync(uint32_t, bool value) { return __ballot_sync(0, value) == ~0u; }
inline bool __any_sync(uint32_t, bool value) { return __ballot_sync(0, value) != 0; }
template <typename T>
T __shfl_sync(uint32_t, T value, uint32_t lane) {
  return static_cast<T>(cohort::ibp::warp::meet(value)[lane % 32]);
}
template <typename T>
T __shfl_up_sync(uint32_t, T value, uint32_t step) {
  const uint32_t lane = threadIdx.x;
  return static_cast<T>(cohort::ibp::warp::meet(value)[lane < step ? lane : lane - step]);
}

template <typename T>
T atomicOr(T* to, std::type_identity_t<T> value) {
  const T before = *to;
  *to |= value;
  return before;
}
template <typename T>
T atomicAdd(T* to, std::type_identity_t<T> value) {
  const T before = *to;
  *to += value;
  return before;
}
template <typename T>
T atomicMin(T* to, std::type_identity_t<T> value) {
  const T before = *to;
  *to = value < before ? value : before;
  return before;
}
