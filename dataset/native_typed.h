// Data sets of several node types as Python sees them.
#pragma once

#include <nanobind/nanobind.h>

#include "dataset/dataset.h"

namespace cohort::dataset {

// What meta.json says of a typed data set.
nanobind::dict describe_types(const Dataset& data);

void register_types(nanobind::module_& m);

}  // namespace cohort::dataset
