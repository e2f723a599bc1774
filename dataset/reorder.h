// Renumbering the nodes of a data set, so that nodes that are drawn often lie together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stop_token>
#include <vector>

#include "dataset/dataset.h"

namespace cohort::dataset {

inline constexpr const char* kOldOfNewFile = "old_of_new.npy";  // int64 [V]

// int64 [V]: the nodes by in-degree, largest first, ties by number. indptr int64 [V + 1].
std::vector<int64_t> degree_order(std::span<const int64_t> indptr);

// Writes all but the features of the same graph into an existing folder: new node i is node old_of_new[i], kept in
// kOldOfNewFile. Neighbours and splits are in ascending order of the new numbers.
void write_renumbered(const std::filesystem::path& folder, const Dataset& data, std::span<const int64_t> old_of_new,
                      const std::stop_token& stop = {});

// out[i] = rows[ids[i]], for rows of row_bytes bytes.
void take_rows(const std::byte* rows, std::size_t row_bytes, std::span<const int64_t> ids, std::byte* out,
               const std::stop_token& stop = {});

}  // namespace cohort::dataset
