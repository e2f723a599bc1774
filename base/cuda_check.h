// What a CUDA call returns, checked. Only code for CUDA includes this.
#pragma once

#include <cuda_runtime_api.h>

#include <source_location>

#include "base/check.h"

namespace cohort::base {

// Throws Error when a CUDA call failed; `what` names the call's purpose ("allocate slot 2").
void cuda_check(cudaError_t status, const char* what = "CUDA call",
                std::source_location where = std::source_location::current());

}  // namespace cohort::base
