#include "base/owners.h"

#include "base/check.h"
#include "base/pinned_memory.h"

namespace cohort::base {

Stream::Stream() { cuda_check(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking), "create stream"); }

Stream::~Stream() {
  if (handle_) cudaStreamDestroy(handle_);
}

void Stream::synchronize() const { cuda_check(cudaStreamSynchronize(handle_), "wait for stream"); }

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
  data_ = static_cast<std::byte*>(data);
}

DeviceBytes::~DeviceBytes() {
  if (data_) cudaFree(data_);
}

void fill_gpu(void* to, int byte, std::size_t bytes, const char* what) {
  cuda_check(cudaMemset(to, byte, bytes), what);
  cuda_check(cudaStreamSynchronize(cudaStreamLegacy), what);
}

void copy_to_gpu(void* to, const void* from, std::size_t bytes, const char* what) {
  if (bytes == 0) return;
  cuda_check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), what);
  cuda_check(cudaStreamSynchronize(cudaStreamLegacy), what);
}

PinnedBytes::PinnedBytes(std::size_t bytes) {
  if (bytes == 0) return;
  Mapping pages = Mapping::zeros(bytes, "host memory", "");
  touch_and_lock({pages.data(), bytes}, {});
  check_locked(touch_and_lock({}, {pages.data(), bytes}), bytes);
  pages_ = std::move(pages);
}

PinnedBytes::~PinnedBytes() {
  if (data()) cudaHostUnregister(data());
}

}  // namespace cohort::base
