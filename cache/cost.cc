#include "cache/cost.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace cohort::cache {
namespace {

constexpr int64_t kPackedAlignBytes = 4;  // rows of their own length lie at multiples of this
constexpr int64_t kWordBytes = 8;         // lists lie at multiples of this, their length first

int64_t round_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

int64_t least_row_bytes(const GraphSizes& sizes) {
  if (!sizes.each_row_bytes) return sizes.row_bytes;
  uint32_t least = UINT32_MAX;
#pragma omp parallel for reduction(min : least) if (sizes.num_nodes > 4096)
  for (int64_t node = 0; node < sizes.num_nodes; ++node) least = std::min(least, sizes.each_row_bytes[node]);
  return least;
}

}  // namespace

double mean_reads(Kind kind, const Counts& counts, int64_t node) {
  const uint32_t reads = kind == Kind::kFeature ? counts.node_reads[node] : counts.expansions[node];
  return reads / static_cast<double>(counts.num_batches);
}

double mean_lines(int64_t bytes, int64_t align_bytes) {
  if (bytes == 0) return 0;
  return 1 + static_cast<double>(round_up(bytes, align_bytes) - align_bytes) / kLineBytes;
}

double drawn_lines(double picks, int64_t degree, int index_bytes) {
  if (picks <= 0 || degree == 0) return 0;
  const double lines = mean_lines(degree * index_bytes, index_bytes);
  if (picks >= static_cast<double>(degree)) return lines;
  return std::min(picks, lines * (1 - std::pow(1 - 1 / lines, picks)));
}

Costs::Costs(const GraphSizes& sizes, const Links& links)
    : sizes_(sizes),
      row_align_bytes_(sizes.each_row_bytes ? kPackedAlignBytes
                                            : std::gcd(sizes.row_bytes, static_cast<int64_t>(kLineBytes))),
      least_bytes_{least_row_bytes(sizes), kWordBytes} {
  std::transform(links.begin(), links.end(), line_seconds_.begin(), [](const Link& l) { return l.line_seconds(); });
}

int64_t Costs::stored_bytes(Kind kind, int64_t node) const {
  if (kind == Kind::kFeature) return row_bytes(node);
  return kWordBytes + round_up(degree(node) * sizes_.index_bytes, kWordBytes);
}

Use Costs::feature_use(Tier tier, const Counts& counts, int64_t node) const {
  const auto at = static_cast<std::size_t>(tier);
  Use use;
  use.reads = mean_reads(Kind::kFeature, counts, node);
  use.bytes = use.reads * static_cast<double>(row_bytes(node));
  use.lines = use.reads * mean_lines(row_bytes(node), row_align_bytes_);
  use.seconds = use.lines * line_seconds_[at];
  return use;
}

// From the host: two offsets, then neighbours. From a slab: the length, then neighbours. (The lookup that says where a
// list is reads local memory in every case and is left out.)
Use Costs::topology_use(Tier tier, const Counts& counts, int64_t node) const {
  const auto at = static_cast<std::size_t>(tier);
  if (counts.expansions[node] == 0) return {};
  const double edges = static_cast<double>(counts.edges_read[node]);
  const double picks = edges / counts.expansions[node];
  const int64_t head_bytes = tier == Tier::kHost ? 2 * kWordBytes : kWordBytes;
  Use use;
  use.reads = mean_reads(Kind::kTopology, counts, node);
  use.bytes = use.reads * (static_cast<double>(head_bytes) + picks * sizes_.index_bytes);
  use.lines = use.reads * (mean_lines(head_bytes, kWordBytes) + drawn_lines(picks, degree(node), sizes_.index_bytes));
  use.seconds = use.lines * line_seconds_[at];
  return use;
}

Use Costs::use(Kind kind, Tier tier, const Counts& counts, int64_t node) const {
  return kind == Kind::kFeature ? feature_use(tier, counts, node) : topology_use(tier, counts, node);
}

Costs::Saved Costs::saved(Kind kind, const Counts& counts, int64_t node) const {
  const double peer = use(kind, Tier::kPeer, counts, node).seconds;
  return {use(kind, Tier::kHost, counts, node).seconds - peer, peer - use(kind, Tier::kLocal, counts, node).seconds};
}

}  // namespace cohort::cache
