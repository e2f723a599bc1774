#include "cache/plan/cost.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/bits.h"

namespace cohort::cache {
namespace {

constexpr int64_t kPackedAlignBytes = 4;  // rows of their own length lie at multiples of this
constexpr int64_t kWordBytes = 8;         // lists lie at multiples of this, their length first

int64_t least_row_bytes(const GraphSizes& sizes) {
  const RowBytes& rows = sizes.slab_rows;
  if (!rows.each) return rows.bytes;
  uint32_t least = UINT32_MAX;
#pragma omp parallel for reduction(min : least) if (sizes.num_nodes > kFewItems)
  for (int64_t node = 0; node < sizes.num_nodes; ++node) least = std::min(least, rows.each[node]);
  return least;
}

}  // namespace

double mean_reads(Kind kind, const Counts& counts, int64_t node) {
  const bool rows = kind == Kind::kFeature;
  const uint32_t count = rows ? counts.node_reads[node] : counts.expansions[node];
  const std::span<const double> promised = rows ? counts.promises.reads : counts.promises.expansions;
  double reads = count;
  if (count < promised.size()) {
    reads = promised[count];
  } else if (!promised.empty()) {
    reads = promised.back() + static_cast<double>(count - (promised.size() - 1));
  }
  return reads / static_cast<double>(counts.num_batches);
}

double mean_picks(const Counts& counts, int64_t num_nodes) {
  int64_t num_expansions = 0, num_edges = 0;
#pragma omp parallel for reduction(+ : num_expansions, num_edges) if (num_nodes > kFewItems)
  for (int64_t node = 0; node < num_nodes; ++node) {
    num_expansions += counts.expansions[node];
    num_edges += static_cast<int64_t>(counts.edges_read[node]);
  }
  return num_expansions == 0 ? 0 : static_cast<double>(num_edges) / static_cast<double>(num_expansions);
}

double mean_lines(int64_t bytes, int64_t align_bytes) {
  if (bytes == 0) return 0;
  return 1 + static_cast<double>(base::round_up(bytes, align_bytes) - align_bytes) / kLineBytes;
}

double drawn_lines(double picks, int64_t degree, int index_bytes) {
  if (picks <= 0 || degree == 0) return 0;
  const double lines = mean_lines(degree * index_bytes, index_bytes);
  if (picks >= static_cast<double>(degree)) return lines;
  return std::min(picks, lines * (1 - std::pow(1 - 1 / lines, picks)));
}

Use& Use::operator+=(const Use& other) {
  reads += other.reads;
  bytes += other.bytes;
  lines += other.lines;
  seconds += other.seconds;
  return *this;
}

Costs::Rows Costs::rows_of(const RowBytes& rows) {
  return {rows, rows.each ? kPackedAlignBytes : std::gcd(rows.bytes, static_cast<int64_t>(kLineBytes))};
}

Costs::Costs(const GraphSizes& sizes, const Links& links)
    : sizes_(sizes),
      slab_rows_(rows_of(sizes.slab_rows)),
      host_rows_(sizes.host_rows.each || sizes.host_rows.bytes > 0 ? rows_of(sizes.host_rows) : slab_rows_),
      recent_rows_(rows_of({sizes.recent_row_bytes})),
      least_bytes_{least_row_bytes(sizes), kWordBytes} {
  std::transform(links.begin(), links.end(), line_seconds_.begin(), [](const Link& l) { return l.line_seconds(); });
  line_seconds_[static_cast<std::size_t>(Tier::kRecent)] = line_seconds_[static_cast<std::size_t>(Tier::kLocal)];
}

UseByTier Costs::feature_uses(const Counts& counts, int64_t node) const {
  const double reads = mean_reads(Kind::kFeature, counts, node);
  // Of the batches that read a row, those that find it in one of the batches before, which are taken for independent.
  const double recent = 1 - std::pow(1 - std::min(1.0, reads), sizes_.recent_batches);
  const auto use_of = [&](Tier tier, const Rows& rows, double share) {
    Use use;
    use.reads = reads * share;
    use.bytes = use.reads * static_cast<double>(rows.of(node));
    use.lines = use.reads * mean_lines(rows.of(node), rows.align_bytes);
    use.seconds = use.lines * line_seconds_[static_cast<std::size_t>(tier)];
    return use;
  };
  return {use_of(Tier::kLocal, slab_rows_, 1), use_of(Tier::kPeer, slab_rows_, 1 - recent),
          use_of(Tier::kHost, host_rows_, 1 - recent), use_of(Tier::kRecent, recent_rows_, recent)};
}

// From the host: two offsets, then neighbours. From a slab: the length, then neighbours. (The lookup that says where a
// list is reads local memory in every case and is left out.)
UseByTier Costs::topology_uses(const Counts& counts, int64_t node) const {
  const double reads = sizes_.indptr ? mean_reads(Kind::kTopology, counts, node) : 0;
  if (reads == 0) return {};
  const double picks = counts.expansions[node] == 0
                           ? std::min(counts.mean_picks, static_cast<double>(degree(node)))
                           : static_cast<double>(counts.edges_read[node]) / counts.expansions[node];
  const double drawn = drawn_lines(picks, degree(node), sizes_.index_bytes);
  const auto use_of = [&](Tier tier) {
    const int64_t head_bytes = list_head_bytes(tier);
    Use use;
    use.reads = reads;
    use.bytes = use.reads * (static_cast<double>(head_bytes) + picks * sizes_.index_bytes);
    use.lines = use.reads * (mean_lines(head_bytes, kWordBytes) + drawn);
    use.seconds = use.lines * line_seconds_[static_cast<std::size_t>(tier)];
    return use;
  };
  return {use_of(Tier::kLocal), use_of(Tier::kPeer), use_of(Tier::kHost), Use{}};
}

UseByTier Costs::uses(Kind kind, const Counts& counts, int64_t node) const {
  return kind == Kind::kFeature ? feature_uses(counts, node) : topology_uses(counts, node);
}

Costs::Saved Costs::saved(Kind kind, const Counts& counts, int64_t node) const {
  const auto [local, peer, host, recent] = uses(kind, counts, node);
  return {host.seconds - peer.seconds, peer.seconds + recent.seconds - local.seconds};
}

}  // namespace cohort::cache
