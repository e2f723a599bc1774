// Memory for keys whose pages come when they are first touched.
#pragma once

#include "base/mapping.h"

namespace cohort::dataset {

// Key [count]; move-only.
template <typename Key>
class KeyBuffer {
 public:
  KeyBuffer() = default;
  explicit KeyBuffer(std::size_t count)
      : memory_(base::Mapping::zeros(count * sizeof(Key), "--memory", " to sort in",
                                     "give less: what does not fit is sorted on disk")) {}
  Key* get() const noexcept { return reinterpret_cast<Key*>(memory_.data()); }

 private:
  base::Mapping memory_;
};

}  // namespace cohort::dataset
