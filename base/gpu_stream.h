// A cudaStream_t, also in builds without CUDA, where there are none.
#pragma once

struct CUstream_st;

namespace cohort::base {

using GpuStream = CUstream_st*;

}  // namespace cohort::base
