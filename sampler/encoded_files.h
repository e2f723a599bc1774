// The files of encoded rows of a data set.
#pragma once

#include <filesystem>
#include <future>
#include <vector>

#include "dataset/dataset.h"

namespace cohort::sampler {

// Those of nodes, and of edges.
std::vector<std::filesystem::path> encoded_files(const dataset::Dataset& data, bool with_edges);

// Checks all of them meanwhile; get() throws Error for damage.
std::future<void> verify_rows(const dataset::Dataset& data, bool with_edges);

}  // namespace cohort::sampler
