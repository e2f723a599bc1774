// Where encoded rows go: the packed layout's placement rule and the line counts behind codec="auto". Internal to ibp/.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "base/host_device.h"
#include "ibp/profile_ref.h"

namespace cohort::ibp {

inline constexpr uint32_t kGroupRows = 64;  // rows placed one after the other; every group starts on a line
inline constexpr uint32_t kPackLine = 128;

// Whether a fetch reads the whole slot of a row, not just as much as the longest row takes. So it is with the codecs
// whose files said nothing else of slots from the beginning.
constexpr bool slots_are_read_whole(Codec codec) { return codec != Codec::kLayers; }

// Offset within its group of a row of `bytes`, when the rows before it end at `end`. A row of at most one line moves to
// the next line instead of crossing into it, when that wastes at most half of its own length.
COHORT_HOST_DEVICE constexpr uint32_t place_in_group(uint32_t end, uint32_t bytes) {
  const uint32_t into_line = end % kPackLine;
  const uint32_t padding = kPackLine - into_line;
  const bool crosses = bytes <= kPackLine && into_line + bytes > kPackLine;
  return crosses && padding <= bytes / 2 ? end + padding : end;
}

COHORT_HOST_DEVICE constexpr uint64_t round_up_to_line(uint64_t bytes) {
  return (bytes + kPackLine - 1) / kPackLine * kPackLine;
}

// What reading a row costs on the link, in lines. Memory is read in sectors of 32 bytes, by requests for up to a line
// each, and a request costs as much as one more sector: measured over PCIe 5, rows of 384 to 2064 bytes, within 1 %. So
// a whole line counts 1, and a line of which s sectors are read (1 + s) / 5.
constexpr double link_lines(uint64_t offset, uint64_t bytes) {
  constexpr uint64_t kSector = 32;
  const uint64_t lines = (offset + bytes + kPackLine - 1) / kPackLine - offset / kPackLine;
  const uint64_t sectors = (offset + bytes + kSector - 1) / kSector - offset / kSector;
  return static_cast<double>(lines + sectors) / (1 + kPackLine / kSector);
}

// Mean of link_lines for a row of `bytes` at i * stride, over all i.
constexpr double mean_lines_at_stride(uint32_t stride, uint32_t bytes) {
  const uint32_t period = kPackLine / std::gcd(stride, kPackLine);
  double lines = 0;
  for (uint32_t i = 0; i < period; ++i) lines += link_lines(uint64_t{i} * stride, bytes);
  return lines / period;
}

}  // namespace cohort::ibp
