#include "base/sm_partition.h"

#include <string>

#include "base/device.h"
#include "base/driver.h"

namespace cohort::base {
namespace {

constexpr Driver kSmDriver{"--sampler-sms", "a driver with green contexts (CUDA 12.5)",
                           "update the driver, or leave the option out"};

CUdevResource part_of(const CUdevResource& all, int num_first, SmPartition::Part part) {
  CUdevResource first{}, rest{};
  unsigned groups = 1;
  const CUresult split = COHORT_DRIVER_FUNCTION(kSmDriver, cuDevSmResourceSplitByCount)(
      &first, &groups, &all, &rest, 0, static_cast<unsigned>(num_first));
  if (split == CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION) {  // a client of MPS with a part of the threads
    throw Error({"--sampler-sms", "a GPU that is not divided yet",
                 "an MPS daemon that gives its clients " + std::to_string(all.sm.smCount) + " SMs",
                 "start the daemon without CUDA_MPS_ACTIVE_THREAD_PERCENTAGE, or leave --sampler-sms out"});
  }
  kSmDriver.check(split, "split the SMs");
  if (groups == 0 || rest.sm.smCount == 0) {
    throw Error({"--sampler-sms", "fewer than the GPU's " + std::to_string(all.sm.smCount) + " SMs",
                 std::to_string(num_first), "leave some to the trainer"});
  }
  return part == SmPartition::Part::kFirst ? first : rest;
}

}  // namespace

SmPartition::SmPartition(int num_first, Part part) {
  cuda_check(cudaFree(nullptr), "start the GPU's context");
  CUdevice device = 0;
  kSmDriver.check(COHORT_DRIVER_FUNCTION(kSmDriver, cuDeviceGet)(&device, current_gpu()), "find the GPU");
  CUdevResource all{};
  kSmDriver.check(COHORT_DRIVER_FUNCTION(kSmDriver, cuDeviceGetDevResource)(device, &all, CU_DEV_RESOURCE_TYPE_SM),
                  "tell its SMs");
  CUdevResource own = part_of(all, num_first, part);
  CUdevResourceDesc description = nullptr;
  kSmDriver.check(COHORT_DRIVER_FUNCTION(kSmDriver, cuDevResourceGenerateDesc)(&description, &own, 1),
                  "describe a part of the SMs");
  CUgreenCtx context = nullptr;
  kSmDriver.check(
      COHORT_DRIVER_FUNCTION(kSmDriver, cuGreenCtxCreate)(&context, description, device, CU_GREEN_CTX_DEFAULT_STREAM),
      "make a context of a part of the SMs");
  auto* destroy = COHORT_DRIVER_FUNCTION(kSmDriver, cuGreenCtxDestroy);
  context_ = std::shared_ptr<void>(context, [destroy](void* made) { destroy(static_cast<CUgreenCtx>(made)); });
  num_sms_ = static_cast<int>(own.sm.smCount);
}

Stream SmPartition::make_stream(Priority priority) const {
  CUstream stream = nullptr;
  kSmDriver.check(
      COHORT_DRIVER_FUNCTION(kSmDriver, cuGreenCtxStreamCreate)(&stream, static_cast<CUgreenCtx>(context_.get()),
                                                                CU_STREAM_NON_BLOCKING, stream_priority(priority)),
      "make a stream on a part of the SMs");
  return Stream(stream, context_);
}

}  // namespace cohort::base
