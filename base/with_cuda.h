#pragma once

namespace cohort::base {

// Whether this build has the CUDA code.
#ifdef COHORT_WITH_CUDA
inline constexpr bool kWithCuda = true;
#else
inline constexpr bool kWithCuda = false;
#endif

}  // namespace cohort::base
