// The SMs of a GPU in two parts, each for streams of its own (green contexts). Two processes that split a GPU alike and
// take different parts do not disturb each other's kernels, as long as they share the GPU through MPS (measured).
#pragma once

#include <memory>

#include "base/owners.h"

namespace cohort::base {

class SmPartition {
 public:
  enum class Part { kFirst, kRest };

  // Of the current GPU: the first `num_first` SMs, rounded up to what it can split off (8 on compute capability 9.0),
  // or the rest. Throws Error when nothing is left for the other part, or the driver knows no green contexts.
  SmPartition(int num_first, Part part);

  int num_sms() const { return num_sms_; }
  // Kernels put on it run on this part alone. It keeps the part.
  Stream make_stream(Priority priority = Priority::kNormal) const;

 private:
  std::shared_ptr<void> context_;
  int num_sms_ = 0;
};

}  // namespace cohort::base
