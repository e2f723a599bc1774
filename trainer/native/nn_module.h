// The part of cohort.trainer._native that cohort.nn calls.
#pragma once

#include <nanobind/nanobind.h>

namespace cohort::trainer {

void bind_layers(nanobind::module_& m);

}  // namespace cohort::trainer
