#include "cache/plan/cost.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "base/bits.h"
#include "cache/plan/row_owner.h"
#include "channel/slot_size.h"

namespace cohort::cache {
namespace {

constexpr int64_t kPackedAlignBytes = 4;  // rows of their own length lie at multiples of this
constexpr int64_t kWordBytes = 8;         // lists lie at multiples of this, their length first
constexpr int kBatchesInUse = 2;          // one is trained on while one is fetched

// Of the rows that there are; INT64_MAX: there are none.
int64_t least_row_bytes(const TableSizes& table) {
  const RowBytes& rows = table.slab_rows;
  if (!rows.each) return rows.bytes > 0 && table.num_rows > 0 ? rows.bytes : INT64_MAX;
  uint32_t least = UINT32_MAX;
#pragma omp parallel for reduction(min : least) if (table.num_rows > kFewItems)
  for (int64_t row = 0; row < table.num_rows; ++row) least = std::min(least, rows.each[row]);
  return least;
}

// Times a batch that an item with this count is read.
double mean_reads_of(const Counts& counts, uint32_t count, std::span<const double> promised) {
  double reads = count;
  if (count < promised.size()) {
    reads = promised[count];
  } else if (!promised.empty()) {
    reads = promised.back() + static_cast<double>(count - (promised.size() - 1));
  }
  return reads / static_cast<double>(counts.num_batches);
}

// [largest count + 1]: how many of these rows have each count.
std::vector<int64_t> rows_by_count(const uint32_t* counts, int64_t num_rows) {
  uint32_t most = 0;
#pragma omp parallel for reduction(max : most) if (num_rows > kFewItems)
  for (int64_t row = 0; row < num_rows; ++row) most = std::max(most, counts[row]);
  std::vector<int64_t> sums(most + std::size_t{1}, 0);
#pragma omp parallel if (num_rows > kFewItems)
  {
    std::vector<int64_t> own(sums.size(), 0);
#pragma omp for
    for (int64_t row = 0; row < num_rows; ++row) ++own[counts[row]];
#pragma omp critical
    std::ranges::transform(own, sums, sums.begin(), std::plus<>());
  }
  return sums;
}

// After how many batches the hand of a pool comes back to a row.
double turn_of_pool(const Counts& counts, int64_t first_row, int64_t num_rows, int num_slots) {
  const std::vector<int64_t> rows = rows_by_count(counts.node_reads + first_row, num_rows);
  std::vector<double> reads;
  for (uint32_t count = 0; count < rows.size(); ++count) {
    reads.push_back(mean_reads_of(counts, count, counts.promises.reads));
  }
  const auto sum = [&](const auto& of_reads) {
    double total = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) total += static_cast<double>(rows[i]) * of_reads(reads[i]);
    return total;
  };
  const auto batch_rows = static_cast<int64_t>(sum([](double p) { return std::min(1.0, p); }));
  const auto room = static_cast<double>(
      channel::pool_rows(num_slots, channel::pool_batch_nodes(batch_rows, num_rows), num_rows, true));
  if (room >= sum([](double p) { return p > 0 ? 1 : 0; })) return std::numeric_limits<double>::infinity();
  const auto rows_there = [&](double batches) { return sum([&](double p) { return share_found(p, batches); }); };
  double less = 0, more = 1;
  while (rows_there(more) < room) more *= 2;
  for (int i = 0; i < 50; ++i) {
    const double middle = (less + more) / 2;
    (rows_there(middle) < room ? less : more) = middle;
  }
  return less;
}

}  // namespace

int64_t GraphSizes::num_rows() const {
  return std::accumulate(tables.begin(), tables.end(), int64_t{0},
                         [](int64_t sum, const TableSizes& table) { return sum + table.num_rows; });
}

double mean_reads(Kind kind, const Counts& counts, int64_t item) {
  const bool rows = kind == Kind::kFeature;
  return mean_reads_of(counts, rows ? counts.node_reads[item] : counts.expansions[item],
                       rows ? counts.promises.reads : counts.promises.expansions);
}

double share_found(double reads, double turn) {
  const double p = std::min(1.0, reads), stays = p * turn;
  if (!(stays > 0)) return 0;
  return std::isinf(stays) ? 1 : stays / (std::pow(1 - p, kBatchesInUse) + stays);
}

std::vector<double> pool_batches(const GraphSizes& sizes, const Counts& counts) {
  std::vector<double> batches;
  int64_t first = 0;
  for (const TableSizes& table : sizes.tables) {
    batches.push_back(sizes.pool_slots == 0 ? 0 : turn_of_pool(counts, first, table.num_rows, sizes.pool_slots));
    first += table.num_rows;
  }
  return batches;
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

Costs::Costs(const GraphSizes& sizes, const Links& links, double network_bytes_per_second)
    : relations_(sizes.relations),
      parts_(sizes.parts),
      network_bytes_per_second_(network_bytes_per_second),
      num_items_{sizes.num_rows(), sizes.num_lists()},
      least_bytes_{INT64_MAX, kWordBytes} {
  int64_t first = 0;
  for (const TableSizes& table : sizes.tables) {
    const RowBytes& slab = table.slab_rows;
    const RowBytes& host = table.host_rows.each || table.host_rows.bytes > 0 ? table.host_rows : slab;
    tables_.push_back({first, rows_of(slab), rows_of(host)});
    first += table.num_rows;
    least_bytes_[0] = std::min(least_bytes_[0], least_row_bytes(table));
  }
  std::transform(links.begin(), links.end(), line_seconds_.begin(), [](const Link& l) { return l.line_seconds(); });
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
  const auto number = static_cast<std::size_t>(&table - tables_.data());
  const double found = counts.pool_batches.empty() ? 0 : share_found(reads, counts.pool_batches[number]);
  const auto use = [&](Tier tier, const Rows& rows) {
    const int64_t bytes = rows.of(in_table);
    return use_of(tier, reads * (1 - found), static_cast<double>(bytes), mean_lines(bytes, rows.align_bytes));
  };
  UseByTier uses = {use(Tier::kLocal, table.slab), use(Tier::kPeer, table.slab), use(Tier::kHost, table.host),
                    Use{.reads = reads * found}};
  if (parts_.count > 1 && owner_of(in_table, parts_.count) != parts_.own) {
    Use& remote = uses[kRemoteTier];
    remote = std::exchange(uses[kHostTier], Use{});
    remote.seconds += remote.bytes / network_bytes_per_second_;
  }
  return uses;
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
  const auto use = [&](Tier tier) {
    const int64_t head_bytes = list_head_bytes(tier);
    return use_of(tier, reads, static_cast<double>(head_bytes) + bytes, mean_lines(head_bytes, kWordBytes) + drawn);
  };
  return {use(Tier::kLocal), use(Tier::kPeer), use(Tier::kHost), Use{}};
}

UseByTier Costs::uses(Kind kind, const Counts& counts, int64_t item) const {
  return kind == Kind::kFeature ? feature_uses(counts, item) : topology_uses(counts, item);
}

Costs::Saved Costs::saved(Kind kind, const Counts& counts, int64_t item) const {
  const auto [local, peer, host, recent, disk, remote] = uses(kind, counts, item);
  return {host.seconds + remote.seconds - peer.seconds, peer.seconds - local.seconds};
}

}  // namespace cohort::cache
