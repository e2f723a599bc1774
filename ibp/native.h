// What the files of cohort.ibp._native share.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>

#include "ibp/ibp.h"

namespace cohort::ibp {

// layout: auto, packed or slots. Throws Error on another one.
EncodeOptions encode_options(const std::string& layout, uint32_t slot_bytes);

void bind_gpu(nanobind::module_& module);  // native_gpu.cc, in builds with CUDA

}  // namespace cohort::ibp
