// The parts of cohort.trainer.loader._native.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>

#include "trainer/loader/native/held_slot.h"

namespace cohort::trainer {

// Of a channel's header.
inline nanobind::dlpack::dtype dlpack_type(uint32_t code) {
  return {static_cast<uint8_t>(code >> 8), static_cast<uint8_t>(code & 0xFF), 1};
}

// x, n_id, y, edge_index and so on, as torch tensors, through DLPack: properties of the class.
void bind_arrays(nanobind::class_<HeldSlot>& slot_class);

}  // namespace cohort::trainer
