// Functions of CUDA's driver, asked for at run time: a program that is linked with the driver would not start on a
// machine without one.
#pragma once

#include <cuda.h>

#include <string>

#include "base/cuda_check.h"

namespace cohort::base {

// What asks the driver for something; the texts are for errors.
struct Driver {
  const char* place;
  const char* needed;
  const char* hint;

  template <typename Function>
  Function* function(const char* name) const {
    constexpr unsigned kVersion = 12050;  // the first with streams of green contexts
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const cudaError_t status = cudaGetDriverEntryPointByVersion(name, &function, kVersion, cudaEnableDefault, &found);
    if (status != cudaSuccess || found != cudaDriverEntryPointSuccess) {
      cudaGetLastError();  // takes the error back
      throw Error({place, needed, std::string("none: no ") + name, hint});
    }
    return reinterpret_cast<Function*>(function);
  }

  // Throws Error when a call failed; `what` completes "the driver to ...".
  void check(CUresult result, const char* what) const {
    if (result == CUDA_SUCCESS) return;
    if (result == CUDA_ERROR_OUT_OF_MEMORY) cuda_check(cudaErrorMemoryAllocation, what);
    throw Error({place, std::string("the driver to ") + what, "error " + std::to_string(result), hint});
  }
};

// Asks for a function by its own name, whose declaration gives the type.
#define COHORT_DRIVER_FUNCTION(driver, name) (driver).function<decltype(name)>(#name)

}  // namespace cohort::base
