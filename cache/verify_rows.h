// The checksums of rows.
#pragma once

#include <string>

namespace cohort::cache {

// Checks all of a file of encoded rows, a piece at a time: little of it is in memory at once. Throws base::Error for
// damage.
void verify_rows(const std::string& file);

}  // namespace cohort::cache
