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

Expected::Expected(std::span<const double> promised, const uint32_t* counts, int64_t num_nodes)
    : of_count_(promised.begin(), promised.end()), offset_(promised.back() - static_cast<double>(promised.size() - 1)) {
  scale_to(counts, num_nodes);
}

// Makes the expected reads of all nodes as many as the counted ones.
void Expected::scale_to(const uint32_t* counts, int64_t num_nodes) {
  const std::size_t size = of_count_.size();
  int64_t nodes_above = 0, counts_above = 0;
  std::vector<int64_t> nodes(size);
  int64_t* of_count = nodes.data();
#pragma omp parallel for reduction(+ : nodes_above, counts_above, of_count[:size]) if (num_nodes > kFewItems)
  for (int64_t node = 0; node < num_nodes; ++node) {
    if (counts[node] < size) {
      ++of_count[counts[node]];
    } else {
      ++nodes_above;
      counts_above += counts[node];
    }
  }
  double counted = static_cast<double>(counts_above);
  double expected = counted + offset_ * static_cast<double>(nodes_above);
  for (std::size_t count = 0; count < nodes.size(); ++count) {
    counted += static_cast<double>(count) * static_cast<double>(nodes[count]);
    expected += of_count_[count] * static_cast<double>(nodes[count]);
  }
  if (!(expected > 0)) return;  // nothing is promised: as it was counted
  scale_ = counted / expected;
  for (double& reads : of_count_) reads *= scale_;
}

void Counts::expect(int64_t num_nodes) {
  const auto of = [&](Kind kind, const uint32_t* counted) {
    const auto known = promises.of(kind);
    return known.empty() ? Expected() : Expected(known, counted, num_nodes);
  };
  expected = {of(Kind::kFeature, node_reads), of(Kind::kTopology, expansions)};
  int64_t num_expansions = 0, num_edges = 0;
#pragma omp parallel for reduction(+ : num_expansions, num_edges) if (num_nodes > kFewItems)
  for (int64_t node = 0; node < num_nodes; ++node) {
    num_expansions += expansions[node];
    num_edges += static_cast<int64_t>(edges_read[node]);
  }
  mean_picks = num_expansions == 0 ? 0 : static_cast<double>(num_edges) / static_cast<double>(num_expansions);
}

double mean_reads(Kind kind, const Counts& counts, int64_t node) {
  const uint32_t count = kind == Kind::kFeature ? counts.node_reads[node] : counts.expansions[node];
  return counts.expected[static_cast<std::size_t>(kind)](count) / static_cast<double>(counts.num_batches);
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

// Of the batches that read a row, those that find it in one of the batches before. `returned` of the reads find it in
// the batch right before; without that knowledge (0) batches are taken for independent, and it is `reads`, their mean.
// It is less where a seed comes once an epoch and brings the row along. It is more where rows of one count differ in
// how often they are read: then rates are taken for Beta(a, b) with that mean and `returned` = (a + 1) / (a + b + 1),
// and w batches before lack the row with the chance prod_{i<w} (b + i) / (a + b + 1 + i).
double Costs::recent_share(double reads, double returned) const {
  const double mean = std::min(1.0, reads);
  const double once = returned > 0 ? std::min(1.0, returned) : mean;
  const bool spread = once > mean && once < 1;
  const double sum = spread ? (1 - once) / (once - mean) : 0;  // a + b
  double none = 1;
  for (int batch = 0; batch < sizes_.recent_batches; ++batch) {
    none *= spread ? ((1 - mean) * sum + batch) / (sum + 1 + batch) : 1 - once;
  }
  return 1 - none;
}

UseByTier Costs::feature_uses(const Counts& counts, int64_t node) const {
  const double reads = mean_reads(Kind::kFeature, counts, node);
  const std::size_t count = counts.node_reads[node];
  const auto returns = counts.promises.returns;
  const double recent = recent_share(reads, count < returns.size() ? returns[count] : 0);
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
