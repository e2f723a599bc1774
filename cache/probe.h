// What each GPU gets from its own memory, a peer's and the host's when it reads rows as the fetch of a batch does: the
// bandwidths that a cache is planned with.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/device.h"

namespace cohort::cache {

struct GpuLinks {
  base::GpuUuid uuid{};
  double local = 0;            // bytes/s
  std::optional<double> peer;  // of the first of the GPUs whose memory it reads; none without
  double host = 0;             // bytes/s, of page-locked memory; a run's tables are managed memory
};

// Has each of the GPUs (ordinals; none: all that are visible), one after the other, read random raw rows of 512 bytes
// on kDefaultFetchSms SMs: from the host in ascending address order, from GPUs in none. The rates are those of stored
// bytes, in the median round. Reads for kProbeSeconds in all. Takes 0.7 GB of each GPU and 0.94 GB of page-locked
// memory, and gives them back. Throws base::Error when they are not to be had, or a GPU is not there.
inline constexpr double kProbeSeconds = 0.6;
std::vector<GpuLinks> probe_links(std::span<const int> ordinals = {});

// How fast rows of a file come from its drive, beside what the drive gives at all.
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
