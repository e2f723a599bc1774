#include "cache/plan/plan.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "cache/plan/placement.h"

namespace cohort::cache {
namespace {

using base::Error;

void need(bool good, const char* place, const std::string& expected, const std::string& found, const char* hint = "") {
  if (!good) throw Error({place, expected, found, hint});
}

void check_cliques(const PlanInput& input) {
  const std::size_t num_gpus = input.budget_bytes.size();
  std::vector<bool> seen(num_gpus);
  for (const auto& clique : input.cliques) {
    need(!clique.empty() && std::ssize(clique) <= kMaxCliqueGpus, "cliques",
         base::format("1 to {} GPUs in each", kMaxCliqueGpus), std::to_string(clique.size()));
    for (int gpu : clique) {
      const auto at = static_cast<std::size_t>(gpu);
      need(gpu >= 0 && at < num_gpus && !seen[at], "cliques", base::format("every GPU of 0 to {} once", num_gpus - 1),
           base::format("GPU {}", gpu), "as many budgets as there are GPUs in cliques");
      seen[at] = true;
    }
  }
  const auto missing = std::find(seen.begin(), seen.end(), false);
  need(missing == seen.end(), "cliques", "every GPU in a clique",
       base::format("GPU {} in no clique", missing - seen.begin()));
}

void check_numbers(const PlanInput& input) {
  const std::size_t num_gpus = input.budget_bytes.size();
  need(num_gpus >= 1, "budgets", "a budget for each GPU", "no budgets");
  for (int64_t bytes : input.budget_bytes) need(bytes >= 0, "budget", "0 bytes or more", std::to_string(bytes));
  need(input.counts.size() == 1 || input.counts.size() == input.cliques.size(), "counts",
       "one for all cliques, or one per clique", std::to_string(input.counts.size()));
  for (const Counts& counts : input.counts) {
    need(counts.num_batches > 0, "counts", "at least one batch", std::to_string(counts.num_batches));
  }
  const IndexCost& index = input.index;
  const int64_t least =
      std::min({index.bitmap_bytes[0], index.bitmap_bytes[1], index.entry_bytes, index.scratch_bytes});
  need(least >= 0, "index", "0 bytes or more", base::format("{} bytes", least));
}

void check_sizes(const GraphSizes& sizes) {
  constexpr auto kMost = INT64_C(0xFFFFFFFF);
  const int64_t num_rows = sizes.num_rows(), num_lists = sizes.num_lists();
  need(num_rows >= 1 && num_rows <= kMost, "graph", "1 to 2^32 - 1 nodes", std::to_string(num_rows));
  need(num_lists <= kMost, "graph", "at most 2^32 - 1 neighbour lists in all relations", std::to_string(num_lists));
  for (const RelationLists& relation : sizes.relations) {
    const int bytes = relation.lists.index_bytes;
    need(bytes == 4 || bytes == 8, "index bytes", "4 or 8", std::to_string(bytes));
  }
  for (const TableSizes& table : sizes.tables) {
    need(table.slab_rows.bytes >= 0, "row bytes", "at least 0", std::to_string(table.slab_rows.bytes));
    need(table.host_rows.bytes >= 0, "host row bytes", "at least 0", std::to_string(table.host_rows.bytes));
  }
  const auto has_rows = [](const TableSizes& table) { return table.slab_rows.each || table.slab_rows.bytes > 0; };
  need(std::ranges::any_of(sizes.tables, has_rows), "row bytes", "at least 1", "0");
}

void check_machines(const PlanInput& input) {
  const auto& [count, own] = input.sizes.parts;
  need(count >= 1 && own >= 0 && own < count, "machines", "at least 1, and one of them",
       base::format("{} of {}", own, count));
  need(input.network_bytes_per_second > 0, "network", "bytes/s above 0",
       base::format("{}", input.network_bytes_per_second));
}

void check_links(const Links& links) {
  double nearer = 0;
  for (const Link& link : links) {
    need(link.bytes_per_second > 0 && link.seconds_per_line >= 0, "bandwidth", "above 0, and at least 0 seconds a line",
         base::format("{} bytes/s, {} s a line", link.bytes_per_second, link.seconds_per_line));
    need(!(link.line_seconds() < nearer), "bandwidth", "local at least peer at least host",
         "a farther tier that is faster",
         "do not put GPUs into one clique if they read each other more slowly than the host");
    nearer = link.line_seconds();
  }
}

int parse_count(std::string_view text, const std::string& whole) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > 4096) {
    throw Error({"cliques", "none, all, or sizes such as 8, 2x4 (two of four) or 3+5", whole, ""});
  }
  return value;
}

}  // namespace

IndexCost index_cost(const GraphSizes& sizes, int64_t entry_bytes, int64_t scratch_bytes) {
  IndexCost index{{0, bitmap_bytes(sizes.num_lists())}, entry_bytes, scratch_bytes};
  for (const TableSizes& table : sizes.tables) {
    if (table.slab_rows.each || table.slab_rows.bytes > 0) index.bitmap_bytes[0] += bitmap_bytes(table.num_rows);
  }
  return index;
}

int64_t GpuPlan::used_bytes() const { return index_bytes + slabs[0].bytes + slabs[1].bytes; }

double GpuPlan::alpha() const {
  const int64_t rows = slabs[0].bytes, lists = slabs[1].bytes;
  return rows + lists == 0 ? 0 : static_cast<double>(lists) / static_cast<double>(rows + lists);
}

double GpuPlan::seconds() const {
  double sum = 0;
  for (const auto& tiers : use) {
    for (const Use& tier : tiers) sum += tier.seconds;
  }
  return sum;
}

double Plan::seconds() const {
  return std::accumulate(gpus.begin(), gpus.end(), 0.0, [](double sum, const GpuPlan& g) { return sum + g.seconds(); });
}

Plan make_plan(const PlanInput& input) {
  check_numbers(input);
  check_sizes(input.sizes);
  check_cliques(input);
  check_links(input.links);
  check_machines(input);
  const auto num_gpus = static_cast<double>(input.budget_bytes.size());
  const Costs costs(input.sizes, input.links, input.network_bytes_per_second / num_gpus);
  need(costs.least_stored_bytes(Kind::kFeature) >= 1, "row bytes", "at least 1 of every row", "0");
  std::vector<Counts> counts = input.counts;
  for (Counts& each : counts) {
    each.mean_picks = mean_picks(each, input.sizes.num_lists());
    each.pool_batches = pool_batches(input.sizes, each);
  }
  Plan plan;
  plan.gpus.resize(input.budget_bytes.size());
  std::vector<int64_t> planned_bytes;  // the budgets of the clique before, whose placement may serve for the next too
  Placement placement;
  for (std::size_t i = 0; i < input.cliques.size(); ++i) {
    std::vector<int64_t> budget_bytes;
    for (const int gpu : input.cliques[i]) budget_bytes.push_back(input.budget_bytes[static_cast<std::size_t>(gpu)]);
    if (counts.size() > 1 || budget_bytes != planned_bytes) {
      placement = place_items(costs, input.index, counts[counts.size() > 1 ? i : 0], budget_bytes);
      planned_bytes = budget_bytes;
    }
    for (std::size_t member = 0; member < input.cliques[i].size(); ++member) {
      plan.gpus[static_cast<std::size_t>(input.cliques[i][member])] = placement.gpus[member];
    }
    plan.cliques.push_back({input.cliques[i], placement.rows});
  }
  return plan;
}

Plan plan_of_table(const Plan& plan, int64_t first_row, int64_t num_rows, const RowBytes& slab_rows) {
  constexpr auto kRows = static_cast<std::size_t>(Kind::kFeature);
  const auto has = [&](uint32_t row) { return row >= first_row && row < first_row + num_rows; };
  const auto here = [&](uint32_t row) { return static_cast<uint32_t>(row - first_row); };
  Plan part;
  part.gpus.resize(plan.gpus.size());
  for (const CliquePlan& clique : plan.cliques) {
    const CliqueRows& all = clique.rows[kRows];
    CliqueRows& rows = part.cliques.emplace_back(CliquePlan{clique.gpus, {}}).rows[kRows];
    std::vector<int64_t> known(clique.gpus.size());  // entries of each GPU's directory
    for (std::size_t i = 0; i < all.nodes.size(); ++i) {
      if (!has(all.nodes[i])) continue;
      rows.nodes.push_back(here(all.nodes[i]));
      rows.owners.push_back(all.owners[i]);
      for (std::size_t member = 0; member < known.size(); ++member) {
        known[member] +=
            std::cmp_less(i, plan.gpus[static_cast<std::size_t>(clique.gpus[member])].slabs[kRows].num_entries);
      }
    }
    for (std::size_t member = 0; member < known.size(); ++member) {
      const auto gpu = static_cast<std::size_t>(clique.gpus[member]);
      Slab& slab = part.gpus[gpu].slabs[kRows];
      slab.num_entries = known[member];
      part.gpus[gpu].index_bytes = slab.num_entries > 0 ? bitmap_bytes(num_rows) + kEntryBytes * slab.num_entries : 0;
      for (const uint32_t row : plan.gpus[gpu].slabs[kRows].nodes) {
        if (!has(row)) continue;
        slab.nodes.push_back(here(row));
        slab.bytes += slab_rows.of(here(row));
      }
    }
  }
  return part;
}

int64_t filling_bytes(const Plan& plan, int64_t num_nodes) {
  // Each row of a slab with its node and entry, each row of a clique with its node and owner, and, for one GPU at a
  // time, the entry of each node and those that it keeps.
  int64_t slab_rows = 0, clique_rows = 0, most_entries = 0;
  for (const GpuPlan& gpu : plan.gpus) {
    for (const Slab& slab : gpu.slabs) {
      slab_rows += std::ssize(slab.nodes);
      most_entries = std::max(most_entries, slab.num_entries);
    }
  }
  if (slab_rows == 0) return 0;
  for (const CliquePlan& clique : plan.cliques) {
    for (const CliqueRows& rows : clique.rows) clique_rows += std::ssize(rows.nodes);
  }
  constexpr int64_t kNodeBytes = sizeof(uint32_t), kOwnerBytes = sizeof(uint16_t);
  return slab_rows * (kNodeBytes + kEntryBytes) + clique_rows * (kNodeBytes + kOwnerBytes) +
         (num_nodes + most_entries) * kEntryBytes;
}

std::vector<std::vector<int>> cliques_named(const std::string& text, int num_gpus) {
  if (text == "none") return cliques_named(base::format("{}x1", num_gpus), num_gpus);
  if (text == "all") return cliques_named(std::to_string(num_gpus), num_gpus);
  std::vector<std::vector<int>> cliques;
  int next = 0;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('+', begin), text.size());
    const std::string_view part = std::string_view(text).substr(begin, end - begin);
    const std::size_t times = part.find('x');
    const int repeats = times == part.npos ? 1 : parse_count(part.substr(0, times), text);
    const int size = parse_count(times == part.npos ? part : part.substr(times + 1), text);
    if (size > kMaxCliqueGpus) {
      throw Error({"cliques", base::format("at most {} GPUs in each", kMaxCliqueGpus), std::to_string(size),
                   base::format("divide them, for example 2x{}", kMaxCliqueGpus)});
    }
    for (int i = 0; i < repeats; ++i) {
      auto& clique = cliques.emplace_back(static_cast<std::size_t>(size));
      std::iota(clique.begin(), clique.end(), next);
      next += size;
    }
    begin = end + 1;
  }
  if (next == num_gpus) return cliques;
  throw Error({"cliques", base::format("{} GPUs in all", num_gpus), base::format("{} in \"{}\"", next, text),
               "none: each GPU alone; all: one clique; cohort plan takes the number of GPUs from --num-gpus"});
}

}  // namespace cohort::cache
