#include "cache/plan/cost.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/bits.h"

namespace cohort::cache {
namespace {

constexpr int64_t kPackedAlignBytes = 4;  // rows of their own length lie at multiples of this
constexpr int64_t kWordBytes = 8;         // lists lie at multiples of this, their length first

// Of the rows that there are; INT64_MAX: there are none.
int64_t least_row_bytes(const TableSizes& table) {
  const RowBytes& rows = table.slab_rows;
  if (!rows.each) return rows.bytes > 0 && table.num_rows > 0 ? rows.bytes : INT64_MAX;
  uint32_t least = UINT32_MAX;
#pragma omp parallel for reduction(min : least) if (table.num_rows > kFewItems)
  for (int64_t row = 0; row < table.num_rows; ++row) least = std::min(least, rows.each[row]);
  return least;
}

}  // namespace

int64_t GraphSizes::num_rows() const {
  return std::accumulate(tables.begin(), tables.end(), int64_t{0},
                         [](int64_t sum, const TableSizes& table) { return sum + table.num_rows; });
}

double mean_reads(Kind kind, const Counts& counts, int64_t item) {
  const bool rows = kind == Kind::kFeature;
  const uint32_t count = rows ? counts.node_reads[item] : counts.expansions[item];
  const std::span<const double> promised = rows ? counts.promises.reads : counts.promises.expansions;
  double reads = count;
  if (count < promised.size()) {
    reads = promised[count];
  } else if (!promised.empty()) {
    reads = promised.back() + static_cast<double>(count - (promised.size() - 1));
  }
  return reads / static_cast<double>(counts.num_batches);
}

double mean_picks(const Counts& counts, int64_t num_lists) {
  int64_t num_expansions = 0, num_edges = 0;
#pragma omp parallel for reduction(+ : num_expansions, num_edges) if (num_lists > kFewItems)
  for (int64_t list = 0; list < num_lists; ++list) {
    num_expansions += counts.expansions[list];
    num_edges += static_cast<int64_t>(counts.edges_read[list]);
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
    : relations_(sizes.relations),
      recent_batches_(sizes.recent_batches),
      num_items_{sizes.num_rows(), sizes.num_lists()},
      least_bytes_{INT64_MAX, kWordBytes} {
  int64_t first = 0;
  for (const TableSizes& table : sizes.tables) {
    const RowBytes& slab = table.slab_rows;
    const RowBytes& host = table.host_rows.each || table.host_rows.bytes > 0 ? table.host_rows : slab;
    tables_.push_back({first, rows_of(slab), rows_of(host), rows_of({table.recent_row_bytes})});
    first += table.num_rows;
    least_bytes_[0] = std::min(least_bytes_[0], least_row_bytes(table));
  }
  std::transform(links.begin(), links.end(), line_seconds_.begin(), [](const Link& l) { return l.line_seconds(); });
  line_seconds_[static_cast<std::size_t>(Tier::kRecent)] = line_seconds_[static_cast<std::size_t>(Tier::kLocal)];
}

void Costs::prefetch(Kind kind, int64_t item) const {
  if (kind == Kind::kTopology) {
    const RelationLists& relation = range_with(relations_, item);
    return __builtin_prefetch(relation.lists.indptr + (item - relation.first));
  }
  const Table& table = range_with(tables_, item);
  if (table.slab.each) __builtin_prefetch(table.slab.each + (item - table.first));
}

UseByTier Costs::feature_uses(const Counts& counts, int64_t row) const {
  const Table& table = range_with(tables_, row);
  const int64_t in_table = row - table.first;
  if (table.slab.of(in_table) == 0) return {};
  const double reads = mean_reads(Kind::kFeature, counts, row);
  // Of the batches that read a row, those that find it in one of the batches before, which are taken for independent.
  const double recent = 1 - std::pow(1 - std::min(1.0, reads), recent_batches_);
  const auto use_of = [&](Tier tier, const Rows& rows, double share) {
    Use use;
    use.reads = reads * share;
    use.bytes = use.reads * static_cast<double>(rows.of(in_table));
    use.lines = use.reads * mean_lines(rows.of(in_table), rows.align_bytes);
    use.seconds = use.lines * line_seconds_[static_cast<std::size_t>(tier)];
    return use;
  };
  return {use_of(Tier::kLocal, table.slab, 1), use_of(Tier::kPeer, table.slab, 1 - recent),
          use_of(Tier::kHost, table.host, 1 - recent), use_of(Tier::kRecent, table.recent, recent)};
}

// From the host: two offsets, then neighbours. From a slab: the length, then neighbours. (The lookup that says where a
// list is reads local memory in every case and is left out.)
UseByTier Costs::topology_uses(const Counts& counts, int64_t list) const {
  const double reads = relations_.empty() ? 0 : mean_reads(Kind::kTopology, counts, list);
  if (reads == 0) return {};
  const auto [degree, index_bytes] = list_at(list);
  const double picks = counts.expansions[list] == 0
                           ? std::min(counts.mean_picks, static_cast<double>(degree))
                           : static_cast<double>(counts.edges_read[list]) / counts.expansions[list];
  const double drawn = drawn_lines(picks, degree, index_bytes), bytes = picks * index_bytes;
  const auto use_of = [&](Tier tier) {
    const int64_t head_bytes = list_head_bytes(tier);
    Use use;
    use.reads = reads;
    use.bytes = use.reads * (static_cast<double>(head_bytes) + bytes);
    use.lines = use.reads * (mean_lines(head_bytes, kWordBytes) + drawn);
    use.seconds = use.lines * line_seconds_[static_cast<std::size_t>(tier)];
    return use;
  };
  return {use_of(Tier::kLocal), use_of(Tier::kPeer), use_of(Tier::kHost), Use{}};
}

UseByTier Costs::uses(Kind kind, const Counts& counts, int64_t item) const {
  return kind == Kind::kFeature ? feature_uses(counts, item) : topology_uses(counts, item);
}

Costs::Saved Costs::saved(Kind kind, const Counts& counts, int64_t item) const {
  const auto [local, peer, host, recent] = uses(kind, counts, item);
  return {host.seconds - peer.seconds, peer.seconds + recent.seconds - local.seconds};
}

}  // namespace cohort::cache
