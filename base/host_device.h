// Marks a function that has one meaning on the host and in CUDA kernels.
#pragma once

#ifdef __CUDACC__
#define COHORT_HOST_DEVICE __host__ __device__
#else
#define COHORT_HOST_DEVICE
#endif
