// Activation and dropout of many elements on the host.
#pragma once

#include "trainer/nn/native/activation_element.h"

namespace cohort::trainer {

// What DropCall makes of x[0, size), by all threads. kept: uint8 [size / kElementsADraw], which elements of each draw
// have come through, as drop_group() tells; null: not wanted.
template <typename T>
void drop_elements(Activation activation, base::PhiloxKey key, uint64_t below, Sum<T> scale, const T* x, int64_t size,
                   T* out, uint8_t* kept);

}  // namespace cohort::trainer
