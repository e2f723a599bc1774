// Where a data set's encoded feature rows are, and whether they still are those of its features.npy: FORMAT.md.
#pragma once

#include <filesystem>

#include "dataset/dataset.h"

namespace cohort::dataset {

inline constexpr const char* kPreparedFolder = "prepared";
inline constexpr const char* kPreparedFile = "prepared.json";
inline constexpr const char* kEncodedFile = "features.ibp";

// The files of encoded rows of the data set in `folder`. Throws base::Error when prepared.json is not ours, when a file
// is missing, or when raw features have changed since.
EncodedFiles find_encoded_rows(const std::filesystem::path& folder, const Meta& meta);

// True when `folder` holds nothing but copies: it is a renumbered data set, or encoded rows.
bool is_prepared_folder(const std::filesystem::path& folder);

}  // namespace cohort::dataset
