// How fast rows of a file come from its drive, beside what the drive gives at all.
#pragma once

#include <chrono>
#include <string>

namespace cohort::cache {

struct DiskRates {
  bool is_direct = false;           // past the page cache
  double blocks_per_second = 0;     // random reads of one block each, by as many threads as rows are read by
  double row_reads_per_second = 0;  // reads of random rows; a few rows share one
  double rows_per_second = 0;
};

// Of a file of encoded rows. Blocks and rows take turns, for `seconds` each. Throws base::Error for a file that is
// none, or cannot be read.
DiskRates probe_disk(const std::string& file, std::chrono::duration<double> seconds);

}  // namespace cohort::cache
