// Where a data set's encoded feature rows are, and whether they still are those of its features.npy: FORMAT.md.
#pragma once

#include <filesystem>

namespace cohort::dataset {

inline constexpr const char* kPreparedFolder = "prepared";
inline constexpr const char* kPreparedFile = "prepared.json";
inline constexpr const char* kEncodedFile = "features.ibp";

// The file of encoded rows of the data set in `folder`; empty when there is none. Throws base::Error when prepared.json
// is not ours, when the file is missing, or when the raw features have changed since.
std::filesystem::path find_encoded_rows(const std::filesystem::path& folder);

// True when `folder` holds nothing but copies: it is a renumbered data set, or encoded rows.
bool is_prepared_folder(const std::filesystem::path& folder);

}  // namespace cohort::dataset
