// The rows of a batch on their way into its slot in host memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/tiered_rows.h"
#include "sampler/backend.h"

namespace cohort::sampler {

class HostFetch {
 public:
  // `start_us`: when the batch began to be written.
  explicit HostFetch(int64_t start_us) : start_us_(start_us) {}

  // out[i] = row ids[i], of coded rows in planes perhaps by plane A alone; row_bytes 0: nothing.
  void add_rows(const cache::FeatureRows& rows, std::span<const int64_t> ids, std::byte* out, bool plane_a);
  void add_rows(const cache::TieredRows& rows, std::span<const int64_t> ids, std::byte* out, bool plane_a);
  // The rows of edges.
  void add_edge_rows(const cache::FeatureRows& rows, std::span<const int64_t> ids, std::byte* out);
  // Rows that the trainer reads itself.
  void count_in_place(int64_t num_rows, int64_t row_bytes);
  // The batch is written, but for far rows. `has_rows`: rows of nodes go to the slot.
  void end_of_host(bool has_rows);

  bool done() const;
  // Waits for far rows. Throws base::Error when they do not come.
  FetchUse finish();

 private:
  int64_t start_us_;
  FetchUse use_;
  std::vector<cache::FarFetch> far_;
};

}  // namespace cohort::sampler
