// Files in shared memory, with their space reserved.
#pragma once

#include <cstddef>
#include <filesystem>

#include "base/mapping.h"

namespace cohort::channel {

// Throws Error when it is no folder.
std::size_t free_bytes_of(const std::filesystem::path& folder);

// Makes the file (mode 0600), reserves `bytes` for it, maps it. Throws Error naming need and space when the file system
// is too small, so that nobody meets a bus error later.
base::Mapping create_shared_file(const std::filesystem::path& path, std::size_t bytes);

}  // namespace cohort::channel
