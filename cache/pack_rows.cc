#include "cache/pack_rows.h"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace cohort::cache {

PackedRows pack_rows(std::span<const ibp::RowSpan> rows, int64_t align, int64_t room, int64_t offset, std::byte* to,
                     uint64_t* entries) {
  const auto room_of = [align](const ibp::RowSpan& row) { return (int64_t{row.bytes} + align - 1) & -align; };
  const auto most = static_cast<std::size_t>(omp_get_max_threads());
  std::vector<int64_t> begins(most + 1);  // of each thread's rows, from `to`
  std::vector<PackedRows> parts(most);
#pragma omp parallel
  {
    const auto thread = static_cast<std::size_t>(omp_get_thread_num());
    const auto threads = static_cast<std::size_t>(omp_get_num_threads());
    const std::size_t first = rows.size() * thread / threads, last = rows.size() * (thread + 1) / threads;
    int64_t bytes = 0;
    for (std::size_t i = first; i < last; ++i) bytes += room_of(rows[i]);
    begins[thread + 1] = bytes;
#pragma omp barrier
#pragma omp single
    for (std::size_t i = 1; i <= threads; ++i) begins[i] += begins[i - 1];
    PackedRows part;
    for (std::size_t i = first; i < last; ++i) {
      const int64_t at = begins[thread] + part.bytes, taken = room_of(rows[i]);
      if (at + taken > room) break;  // of those in later parts none finds room then
      std::memcpy(to + at, rows[i].begin, rows[i].bytes);
      entries[i] = ibp::make_entry(static_cast<uint64_t>(offset + at), (rows[i].bytes + 3) / 4 * 4, rows[i].raw);
      if (taken) part.step_bytes = std::min(part.step_bytes, static_cast<uint32_t>(taken & -taken));
      part.bytes += taken;
      ++part.count;
    }
    parts[thread] = part;
  }
  PackedRows all;
  for (const PackedRows& part : parts) {
    all.count += part.count;
    all.bytes += part.bytes;
    all.step_bytes = std::min(all.step_bytes, part.step_bytes);
  }
  return all;
}

}  // namespace cohort::cache
