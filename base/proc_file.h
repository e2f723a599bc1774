// Small files of the kernel: /proc and /sys.
#pragma once

#include <filesystem>
#include <string>

namespace cohort::base {

// Its contents; empty when it cannot be read. (No C++ streams here: inside a Python process another library's copy of
// them may be the one that runs, and was seen to read every number as 0.)
std::string read_proc(const std::filesystem::path& path);

}  // namespace cohort::base
