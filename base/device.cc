#include "base/device.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

#include "base/cuda_check.h"
#include "base/driver.h"
#include "base/format.h"

namespace cohort::base {
namespace {

constexpr Driver kGpuDriver{"the GPU of a thread", "a driver that says which GPUs a process uses", "update the driver"};

}  // namespace

std::vector<Gpu> visible_gpus() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver) {
    cudaGetLastError();  // clears the answer "none": it is no failure here
    return {};
  }
  cuda_check(status, "count GPUs");
  std::vector<Gpu> gpus;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    cudaDeviceProp properties{};
    cuda_check(cudaGetDeviceProperties(&properties, ordinal), "read GPU properties");
    Gpu gpu{
        ordinal, {}, properties.name, properties.multiProcessorCount, static_cast<int64_t>(properties.totalGlobalMem)};
    int reads = 0;
    cuda_check(cudaDeviceGetAttribute(&reads, cudaDevAttrCanUseHostPointerForRegisteredMem, ordinal),
               "ask how a GPU reads host memory");
    gpu.reads_registered = reads != 0;
    std::memcpy(gpu.uuid.data(), properties.uuid.bytes, gpu.uuid.size());
    gpus.push_back(gpu);
  }
  return gpus;
}

int ordinal_of(const GpuUuid& uuid) {
  for (const Gpu& gpu : visible_gpus()) {
    if (gpu.uuid == uuid) return gpu.ordinal;
  }
  throw Error({"CUDA_VISIBLE_DEVICES", format_uuid(uuid), "no such GPU in this process",
               "sampler and trainer must see the same GPU"});
}

std::string format_uuid(const GpuUuid& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += base::format("{:02x}", uuid[i]);
  }
  return text;
}

bool can_read_peer(int reader, int owner) {
  int yes = 0;
  cuda_check(cudaDeviceCanAccessPeer(&yes, reader, owner), "ask for peer access");
  return yes != 0;
}

std::vector<std::vector<int>> cliques_of(std::span<const int> gpus, std::size_t most,
                                         const std::function<bool(int, int)>& can_read) {
  std::vector<std::vector<int>> cliques;
  for (int gpu : gpus) {
    const auto joins = [&](const std::vector<int>& clique) {
      return clique.size() < most &&
             std::ranges::all_of(clique, [&](int other) { return can_read(gpu, other) && can_read(other, gpu); });
    };
    const auto clique = std::ranges::find_if(cliques, joins);
    if (clique == cliques.end()) {
      cliques.push_back({gpu});
    } else {
      clique->push_back(gpu);
    }
  }
  return cliques;
}

std::vector<std::vector<int>> peer_cliques(std::span<const int> gpus) {
  return cliques_of(gpus, gpus.size(), can_read_peer);
}

int current_gpu() {
  int gpu = 0;
  cuda_check(cudaGetDevice(&gpu), "read the current GPU");
  return gpu;
}

void choose_gpu(int ordinal) { cuda_check(cudaSetDevice(ordinal), "choose a GPU"); }

bool open_peer(int ordinal) {
  const cudaError_t status = cudaDeviceEnablePeerAccess(ordinal, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled || status == cudaErrorPeerAccessUnsupported) {
    cudaGetLastError();  // takes the error back
    return status == cudaErrorPeerAccessAlreadyEnabled;
  }
  cuda_check(status, "get access to a peer's memory");
  return true;
}

CurrentGpu::CurrentGpu(int ordinal) : before_(current_gpu()) {
  if (before_ == ordinal) return;
  CUdevice device{};
  unsigned flags = 0;
  int in_use = 0;
  kGpuDriver.check(COHORT_DRIVER_FUNCTION(kGpuDriver, cuDeviceGet)(&device, before_), "find a GPU");
  kGpuDriver.check(COHORT_DRIVER_FUNCTION(kGpuDriver, cuDevicePrimaryCtxGetState)(device, &flags, &in_use),
                   "look at a GPU");
  returns_ = in_use != 0;
  choose_gpu(ordinal);
}

CurrentGpu::~CurrentGpu() {
  if (returns_) cudaSetDevice(before_);
}

int64_t free_device_bytes() {
  std::size_t free = 0, total = 0;
  cuda_check(cudaMemGetInfo(&free, &total), "read free GPU memory");
  return static_cast<int64_t>(free);
}

uint32_t most_shared_bytes() {
  int bytes = 0;
  cuda_check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, current_gpu()),
             "read shared memory");
  return static_cast<uint32_t>(bytes);
}

}  // namespace cohort::base
