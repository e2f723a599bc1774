#include "base/shared_gpu_bytes.h"

#include <algorithm>

#include "base/cuda_check.h"
#include "base/device.h"
#include "base/driver.h"

namespace cohort::base {
namespace {

constexpr Driver kMemoryDriver{"GPU memory of sampler and trainer", "a driver that shares memory (CUDA 12.5)",
                               "update the driver; in a container, allow processes to hand each other its files"};

// Looked up once, so that memory can be given back where nothing may fail.
struct Functions {
  decltype(&cuMemGetAllocationGranularity) page_bytes =
      COHORT_DRIVER_FUNCTION(kMemoryDriver, cuMemGetAllocationGranularity);
  decltype(&cuMemCreate) create = COHORT_DRIVER_FUNCTION(kMemoryDriver, cuMemCreate);
  decltype(&cuMemRelease) release = COHORT_DRIVER_FUNCTION(kMemoryDriver, cuMemRelease);
  decltype(&cuMemExportToShareableHandle) share = COHORT_DRIVER_FUNCTION(kMemoryDriver, cuMemExportToShareableHandle);
  decltype(&cuMemImportFromShareableHandle) open =
      COHORT_DRIVER_FUNCTION(kMemoryDriver, cuMemImportFromShareableHandle);
  decltype(&cuMemAddressReserve) reserve = COHORT_DRIVER_FUNCTION(kMemoryDriver, cuMemAddressReserve);
  decltype(&cuMemAddressFree) free_address = COHORT_DRIVER_FUNCTION(kMemoryDriver, cuMemAddressFree);
  decltype(&cuMemMap) map = COHORT_DRIVER_FUNCTION(kMemoryDriver, cuMemMap);
  decltype(&cuMemUnmap) unmap = COHORT_DRIVER_FUNCTION(kMemoryDriver, cuMemUnmap);
  decltype(&cuMemSetAccess) allow = COHORT_DRIVER_FUNCTION(kMemoryDriver, cuMemSetAccess);
  decltype(&cuDeviceGetAttribute) attribute = COHORT_DRIVER_FUNCTION(kMemoryDriver, cuDeviceGetAttribute);
};

const Functions& driver() {
  static const Functions functions;
  return functions;
}

int current_gpu_with_context() {
  cuda_check(cudaFree(nullptr), "start the GPU's context");
  return current_gpu();
}

CUmemAllocationProp properties_of(int gpu) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = gpu;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

// Bytes of whole pages, the large ones.
std::size_t whole_pages(int gpu, std::size_t bytes) {
  const CUmemAllocationProp properties = properties_of(gpu);
  std::size_t page = 0;
  kMemoryDriver.check(driver().page_bytes(&page, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                      "tell its page size");
  return (bytes + page - 1) / page * page;
}

}  // namespace

SharedGpuBytes::SharedGpuBytes(std::size_t bytes, const char* what, std::byte* at) : bytes_(bytes) {
  map(what, at, [](CUmemGenericAllocationHandle* memory, std::size_t mapped_bytes, int gpu) {
    const CUmemAllocationProp properties = properties_of(gpu);
    return driver().create(memory, mapped_bytes, &properties, 0);
  });
}

SharedGpuBytes::SharedGpuBytes(const FileDescriptor& shared, std::size_t bytes, const char* what, std::byte* at)
    : bytes_(bytes) {
  map(what, at, [&](CUmemGenericAllocationHandle* memory, std::size_t, int) {
    void* number = reinterpret_cast<void*>(static_cast<intptr_t>(shared.get()));
    return driver().open(memory, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  });
}

template <typename Obtain>
void SharedGpuBytes::map(const char* what, std::byte* reserved, Obtain obtain) {
  if (bytes_ == 0) return;
  const int gpu = current_gpu_with_context();
  Unmap unmap{gpu, whole_pages(gpu, bytes_), !reserved, 0};
  kMemoryDriver.check(obtain(&unmap.memory, unmap.mapped_bytes, gpu), what);
  CUmemAccessDesc access{};
  access.location = properties_of(gpu).location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  auto at = reinterpret_cast<CUdeviceptr>(reserved);
  CUresult result = unmap.owns_address ? driver().reserve(&at, unmap.mapped_bytes, 0, 0, 0) : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) result = driver().map(at, unmap.mapped_bytes, 0, unmap.memory, 0);
  const bool mapped = result == CUDA_SUCCESS;
  if (mapped) result = driver().allow(at, unmap.mapped_bytes, &access, 1);
  if (result == CUDA_SUCCESS) {
    data_ = {reinterpret_cast<std::byte*>(at), unmap};
    return;
  }
  if (mapped) driver().unmap(at, unmap.mapped_bytes);
  if (at && unmap.owns_address) driver().free_address(at, unmap.mapped_bytes);
  driver().release(unmap.memory);
  kMemoryDriver.check(result, what);
}

void SharedGpuBytes::Unmap::operator()(std::byte* data) const noexcept {
  int current = gpu;
  cudaGetDevice(&current);
  cudaSetDevice(gpu);
  cudaDeviceSynchronize();
  cudaSetDevice(current);
  const auto at = reinterpret_cast<CUdeviceptr>(data);
  driver().unmap(at, mapped_bytes);
  if (owns_address) driver().free_address(at, mapped_bytes);
  driver().release(memory);
}

bool SharedGpuBytes::is_supported() {
  const int gpu = current_gpu_with_context();
  for (const CUdevice_attribute needed : {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                          CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED}) {
    int found = 0;
    kMemoryDriver.check(driver().attribute(&found, needed, gpu), "tell whether it shares memory");
    if (!found) return false;
  }
  return true;
}

FileDescriptor SharedGpuBytes::share() const {
  int number = -1;
  kMemoryDriver.check(driver().share(&number, data_.get_deleter().memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                      "share memory");
  return FileDescriptor(number);
}

GrowingGpuBytes::GrowingGpuBytes(std::size_t most_bytes) {
  reserved_bytes_ = whole_pages(current_gpu_with_context(), std::max<std::size_t>(most_bytes, 1));
  CUdeviceptr at = 0;
  kMemoryDriver.check(driver().reserve(&at, reserved_bytes_, 0, 0, 0), "reserve addresses");
  data_ = reinterpret_cast<std::byte*>(at);
}

GrowingGpuBytes::~GrowingGpuBytes() {
  pieces_.clear();
  if (data_) driver().free_address(reinterpret_cast<CUdeviceptr>(data_), reserved_bytes_);
}

const SharedGpuBytes& GrowingGpuBytes::add(std::size_t bytes, const char* what) {
  bytes = whole_pages(current_gpu(), bytes);
  pieces_.emplace_back(bytes, what, next(bytes));
  bytes_ += bytes;
  return pieces_.back();
}

void GrowingGpuBytes::add(const FileDescriptor& shared, std::size_t bytes, const char* what) {
  pieces_.emplace_back(shared, bytes, what, next(bytes));
  bytes_ += bytes;
}

std::byte* GrowingGpuBytes::next(std::size_t bytes) const {
  require(bytes <= reserved_bytes_ - bytes_, "memory that the reserved addresses have room for");
  return data_ + bytes_;
}

}  // namespace cohort::base
