#include "base/owners.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>

#include "base/check.h"

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

PinnedBytes::PinnedBytes(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) fail_errno("host memory", format_bytes(static_cast<double>(bytes)), errno);
  data_ = static_cast<std::byte*>(data);
  constexpr std::size_t kPageBytes = 4096;
#pragma omp parallel for schedule(static)
  for (std::size_t offset = 0; offset < bytes; offset += kPageBytes) data_[offset] = std::byte{0};
  const cudaError_t status = cudaHostRegister(data, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable);
  if (status == cudaSuccess) return;
  munmap(data, bytes);
  throw Error({"pinning host memory", format_bytes(static_cast<double>(bytes)),
               fmt::format("CUDA error {}", cudaGetErrorName(status)),
               "raise the limit on locked memory (ulimit -l unlimited) or free host memory"});
}

PinnedBytes::~PinnedBytes() {
  if (!data_) return;
  cudaHostUnregister(data_);
  munmap(data_, bytes_);
}

}  // namespace cohort::base
