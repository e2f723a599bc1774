// meta.json of data sets of several node types and relations: version 3 of the format.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "dataset/dataset.h"

namespace cohort::dataset {

// What meta.json says, except the name; throws base::Error for the first thing wrong.
Meta read_typed_meta(const nlohmann::json& json, const std::string& place);

}  // namespace cohort::dataset
