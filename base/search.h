// Binary search, on host and device alike.
#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace cohort::base {

// The first number of [begin, end) that is not before what is sought, which is_before() tells; `end`: all are.
#ifdef __CUDACC__
#pragma nv_exec_check_disable
#endif
template <typename IsBefore>
COHORT_HOST_DEVICE constexpr int64_t first_not_before(int64_t begin, int64_t end, IsBefore is_before) {
  while (begin < end) {
    const int64_t middle = begin + (end - begin) / 2;
    if (is_before(middle)) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

}  // namespace cohort::base
