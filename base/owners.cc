#include "base/owners.h"

#include <string>

#include "base/cuda_check.h"

namespace cohort::base {

int stream_priority(Priority priority) {
  int least = 0, greatest = 0;
  cuda_check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "find the priorities of streams");
  return priority == Priority::kUrgent ? greatest : 0;
}

Stream::Stream(Priority priority) {
  cudaStream_t handle = nullptr;
  cuda_check(cudaStreamCreateWithPriority(&handle, cudaStreamNonBlocking, stream_priority(priority)), "create stream");
  handle_.reset(handle);
}

void Stream::synchronize() const { cuda_check(cudaStreamSynchronize(*this), "wait for stream"); }

Event::Event(unsigned flags) { cuda_check(cudaEventCreateWithFlags(&handle_, flags), "create event"); }

Event::Event(const cudaIpcEventHandle_t& handle) {
  cuda_check(cudaIpcOpenEventHandle(&handle_, handle), "open another process's event");
}

Event::~Event() {
  if (handle_) cudaEventDestroy(handle_);
}

void Event::record(cudaStream_t stream) const { cuda_check(cudaEventRecord(handle_, stream), "record event"); }

void Event::synchronize() const { cuda_check(cudaEventSynchronize(handle_), "wait for event"); }

void Event::wait_on(cudaStream_t stream) const { cuda_check(cudaStreamWaitEvent(stream, handle_), "wait for event"); }

bool Event::done() const {
  const cudaError_t status = cudaEventQuery(handle_);
  if (status == cudaErrorNotReady) return false;
  cuda_check(status, "query event");
  return true;
}

cudaIpcEventHandle_t Event::ipc_handle() const {
  cudaIpcEventHandle_t handle;
  cuda_check(cudaIpcGetEventHandle(&handle, handle_), "share event");
  return handle;
}

DeviceBytes::DeviceBytes(std::size_t bytes, const char* what) : bytes_(bytes) {
  void* data = nullptr;
  if (bytes > 0) cuda_check(cudaMalloc(&data, bytes), what);
  data_.reset(static_cast<std::byte*>(data));
}

void fill_gpu(void* to, int byte, std::size_t bytes, const char* what) {
  cuda_check(cudaMemset(to, byte, bytes), what);
  cuda_check(cudaStreamSynchronize(cudaStreamLegacy), what);
}

void copy_to_gpu(void* to, const void* from, std::size_t bytes, const char* what) {
  if (bytes == 0) return;
  cuda_check(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), what);
  cuda_check(cudaStreamSynchronize(cudaStreamLegacy), what);
}

PinnedBytes::PinnedBytes(std::size_t bytes) {
  if (bytes == 0) return;
  constexpr std::size_t kPageBytes = 4096;
  Mapping pages = Mapping::zeros(bytes, "host memory", "");
#pragma omp parallel for schedule(static) if (bytes > 512 * kPageBytes)
  for (std::size_t at = 0; at < bytes; at += kPageBytes) pages.data()[at] = std::byte{0};
  const cudaError_t status = cudaHostRegister(pages.data(), bytes, cudaHostRegisterMapped | cudaHostRegisterPortable);
  if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver) cuda_check(status, "pin host memory");
  if (status != cudaSuccess) {
    throw Error({"pinning host memory", format_bytes(bytes), std::string("CUDA error ") + cudaGetErrorName(status),
                 "raise the limit on locked memory (ulimit -l unlimited) or free host memory"});
  }
  pages_ = std::move(pages);
}

PinnedBytes::~PinnedBytes() {
  if (data()) cudaHostUnregister(data());
}

}  // namespace cohort::base
