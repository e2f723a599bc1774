#include <cuda_runtime_api.h>

#include "base/cuda_check.h"
#include "base/format.h"

namespace cohort::base {
namespace {

const char* hint_for(cudaError_t status) {
  switch (status) {
    case cudaErrorMemoryAllocation:
      return "GPU or pinned host memory ran out; see the sizes above, or use a smaller --batch-size or --fanout";
    case cudaErrorMpsConnectionFailed:
    case cudaErrorMpsServerNotReady:
    case cudaErrorMpsRpcFailure:
      return "the MPS server is gone; start the run again";
    case cudaErrorIllegalAddress:
      return "under MPS a fault in one client ends all clients of that GPU; the launcher names the first";
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
      return "no usable GPU: check nvidia-smi and CUDA_VISIBLE_DEVICES, or use --device cpu";
    default:
      return "";
  }
}

}  // namespace

void cuda_check(cudaError_t status, const char* what, std::source_location where) {
  if (status == cudaSuccess) return;
  throw Error({base::format("{} ({}:{})", what, where.file_name(), where.line()), "success",
               base::format("CUDA error {} {}: {}", static_cast<int>(status), cudaGetErrorName(status),
                            cudaGetErrorString(status)),
               hint_for(status)});
}

}  // namespace cohort::base
