#include "base/host_table.h"

#include <atomic>
#include <cstdlib>
#include <string>

#include "base/cuda_check.h"
#include "base/device.h"

namespace cohort::base {
namespace {

// COHORT_HOST_TABLES=page-locked: even where GPUs can read managed memory.
bool managed_memory_is_wanted() {
  const char* given = std::getenv("COHORT_HOST_TABLES");
  const std::string text = given == nullptr ? "managed" : given;
  if (text == "managed" || text == "page-locked") return text == "managed";
  throw Error({"COHORT_HOST_TABLES", "managed or page-locked", text, "managed is what stands when it is unset"});
}

// Not so on Windows' Linux, and on some virtual GPUs. Managed memory is of one kind for all GPUs of a process.
bool gpus_read_managed_memory() {
  int num_gpus = 0;
  cuda_check(cudaGetDeviceCount(&num_gpus), "count GPUs");
  for (int gpu = 0; gpu < num_gpus; ++gpu) {
    int reads = 0;
    cuda_check(cudaDeviceGetAttribute(&reads, cudaDevAttrConcurrentManagedAccess, gpu), "ask for managed memory");
    if (!reads) return false;
  }
  return true;
}

std::atomic<std::size_t> managed_bytes{0};  // of all tables of this process

// A program that asks for more managed memory than a GPU has free can hang that GPU.
bool has_room_for(std::size_t bytes) {
  return static_cast<double>(managed_bytes + bytes) <= kManagedShare * static_cast<double>(free_device_bytes());
}

// `place`: a GPU, or cudaCpuDeviceId.
void advise(void* data, std::size_t bytes, cudaMemoryAdvise advice, int place) {
#if CUDART_VERSION >= 13000
  const bool on_host = place == cudaCpuDeviceId;
  const cudaMemLocation where{on_host ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice, on_host ? 0 : place};
#else
  const int where = place;
#endif
  cuda_check(cudaMemAdvise(data, bytes, advice, where), "keep a table in host memory");
}

}  // namespace

HostTable::HostTable(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  if (!managed_memory_is_wanted() || !gpus_read_managed_memory() || !has_room_for(bytes)) {
    pinned_ = PinnedBytes(bytes);
    return;
  }
  void* data = nullptr;
  cuda_check(cudaMallocManaged(&data, bytes), "allocate a table in host memory");
  managed_ = {static_cast<std::byte*>(data), Free{bytes}};
  managed_bytes += bytes;
  advise(data, bytes, cudaMemAdviseSetPreferredLocation, cudaCpuDeviceId);
}

void HostTable::Free::operator()(std::byte* data) const noexcept {
  cudaFree(data);
  managed_bytes -= bytes;
}

void HostTable::open_to_gpu() const {
  if (!managed_) return;
  advise(managed_.get(), bytes_, cudaMemAdviseSetAccessedBy, current_gpu());
}

}  // namespace cohort::base
