#include "base/sm_partition.h"

#include <cuda.h>

#include <string>

#include "base/check.h"

namespace cohort::base {
namespace {

constexpr unsigned kDriverVersion = 12050;  // the first with streams of green contexts

// Asked of the driver at run time: a program that is linked with it would not start on a machine without one.
template <typename Function>
Function* driver_function(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion(name, &function, kDriverVersion, cudaEnableDefault, &found);
  if (status != cudaSuccess || found != cudaDriverEntryPointSuccess) {
    cudaGetLastError();  // takes the error back
    throw Error({"--sampler-sms", "a driver with green contexts (CUDA 12.5)", std::string("none: no ") + name,
                 "update the driver, or leave the option out"});
  }
  return reinterpret_cast<Function*>(function);
}

void driver_check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  throw Error({"--sampler-sms", std::string("the driver to ") + what, "error " + std::to_string(result),
               "leave the option out"});
}

CUdevResource part_of(const CUdevResource& all, int num_first, SmPartition::Part part) {
  CUdevResource first{}, rest{};
  unsigned groups = 1;
  driver_check(driver_function<decltype(cuDevSmResourceSplitByCount)>("cuDevSmResourceSplitByCount")(
                   &first, &groups, &all, &rest, 0, static_cast<unsigned>(num_first)),
               "split the SMs");
  if (groups == 0 || rest.sm.smCount == 0) {
    throw Error({"--sampler-sms", "fewer than the GPU's " + std::to_string(all.sm.smCount) + " SMs",
                 std::to_string(num_first), "leave some to the trainer"});
  }
  return part == SmPartition::Part::kFirst ? first : rest;
}

}  // namespace

SmPartition::SmPartition(int num_first, Part part) {
  int gpu = 0;
  cuda_check(cudaGetDevice(&gpu), "read the current GPU");
  cuda_check(cudaFree(nullptr), "start the GPU's context");
  CUdevice device = 0;
  driver_check(driver_function<decltype(cuDeviceGet)>("cuDeviceGet")(&device, gpu), "find the GPU");
  CUdevResource all{};
  driver_check(driver_function<decltype(cuDeviceGetDevResource)>("cuDeviceGetDevResource")(device, &all,
                                                                                           CU_DEV_RESOURCE_TYPE_SM),
               "tell its SMs");
  CUdevResource own = part_of(all, num_first, part);
  CUdevResourceDesc description = nullptr;
  driver_check(driver_function<decltype(cuDevResourceGenerateDesc)>("cuDevResourceGenerateDesc")(&description, &own, 1),
               "describe a part of the SMs");
  CUgreenCtx context = nullptr;
  driver_check(driver_function<decltype(cuGreenCtxCreate)>("cuGreenCtxCreate")(&context, description, device,
                                                                               CU_GREEN_CTX_DEFAULT_STREAM),
               "make a context of a part of the SMs");
  auto* destroy = driver_function<decltype(cuGreenCtxDestroy)>("cuGreenCtxDestroy");
  context_ = std::shared_ptr<void>(context, [destroy](void* made) { destroy(static_cast<CUgreenCtx>(made)); });
  num_sms_ = static_cast<int>(own.sm.smCount);
}

Stream SmPartition::make_stream() const {
  CUstream stream = nullptr;
  driver_check(driver_function<decltype(cuGreenCtxStreamCreate)>("cuGreenCtxStreamCreate")(
                   &stream, static_cast<CUgreenCtx>(context_.get()), CU_STREAM_NON_BLOCKING, 0),
               "make a stream on a part of the SMs");
  return Stream(stream, context_);
}

}  // namespace cohort::base
