#include "base/host_table.h"

#include <cstdlib>
#include <string>

#include "base/check.h"
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
  if (!managed_memory_is_wanted() || !gpus_read_managed_memory()) {
    pinned_ = PinnedBytes(bytes);
    return;
  }
  void* data = nullptr;
  cuda_check(cudaMallocManaged(&data, bytes), "allocate a table in host memory");
  managed_.reset(static_cast<std::byte*>(data));
  advise(data, bytes, cudaMemAdviseSetPreferredLocation, cudaCpuDeviceId);
}

void HostTable::open_to_gpu() const {
  if (!managed_) return;
  advise(managed_.get(), bytes_, cudaMemAdviseSetAccessedBy, current_gpu());
}

}  // namespace cohort::base
