#include <algorithm>

#include "trainer/nn/native/copy_arrays.h"

namespace cohort::trainer {

void run_on_host(const ArrayCopies& copies) {
  for (const ArrayCopy& copy : copies) {
    std::copy_n(copy.from, copy.count, copy.to);
    std::fill(copy.to + copy.count, copy.to + copy.room, copy.fill);
  }
}

}  // namespace cohort::trainer
