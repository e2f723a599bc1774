// The full check of a data set: every element is looked at.
#pragma once

#include <filesystem>
#include <stop_token>
#include <vector>

#include "dataset/dataset.h"

namespace cohort::dataset {

// Everything wrong with the data set in `folder`, in parallel, never throwing for bad data. Empty: all is well.
// Of many bad elements of one kind in a file the first is named, with their number.
std::vector<Problem> check(const std::filesystem::path& folder, const std::stop_token& stop = {});

// Throws base::Error for the first offset, neighbour, class or id of a split that is out of range: whoever indexes by
// them looks first. Reads each of them once, in parallel.
void demand_in_range(const Dataset& data, const std::stop_token& stop = {});

}  // namespace cohort::dataset
