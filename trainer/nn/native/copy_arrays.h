// Several arrays copied at once: one launch where each copy by itself would wait for the one before.
#pragma once

#include <cstdint>
#include <vector>

#include "base/gpu_stream.h"

namespace cohort::trainer {

// `count` elements go to the front of `to`; the rest of its `room` becomes `fill`.
struct ArrayCopy {
  const int64_t* from = nullptr;
  int64_t* to = nullptr;
  int64_t count = 0;
  int64_t room = 0;  // at least `count`
  int64_t fill = 0;
};

using ArrayCopies = std::vector<ArrayCopy>;

void run_on_host(const ArrayCopies& copies);
void run_on_gpu(const ArrayCopies& copies, base::GpuStream stream);

}  // namespace cohort::trainer
