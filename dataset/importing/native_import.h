// What importers need of the C++ library, as Python sees it.
#pragma once

#include <nanobind/nanobind.h>

namespace cohort::dataset {

void register_import(nanobind::module_& m);

}  // namespace cohort::dataset
