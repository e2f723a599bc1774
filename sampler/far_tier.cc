#include "sampler/far_tier.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/host_memory.h"
#include "cache/disk_rows.h"
#include "cache/host_share.h"
#include "cache/plan/hotness.h"
#include "cache/remote/remote_rows.h"
#include "cache/row_subset.h"
#include "cache/staged_reader.h"

namespace cohort::sampler {
namespace {

std::string in_words(int64_t bytes) { return base::format_bytes(static_cast<double>(bytes)); }

int64_t bytes_of_all(const NodeRange& type) {
  if (type.row_bytes == 0) return 0;
  return type.encoded ? type.encoded->encoded().stored_bytes() : type.count * type.row_bytes;
}

std::vector<NodeRange> types_with_rows(const GraphView& graph) {
  std::vector<NodeRange> types = types_of(graph);
  std::erase_if(types, [](const NodeRange& type) { return type.row_bytes == 0; });
  return types;
}

// uint32 [rows of all types]: how often each was counted; empty: nobody counted.
std::vector<uint32_t> counted_reads(const Options& options, int64_t num_nodes) {
  std::set<std::string> files(options.rank_hotness.begin(), options.rank_hotness.end());
  if (!options.hotness.empty()) files.insert(options.hotness.string());
  std::vector<uint32_t> reads;
  for (const std::string& file : files) {
    const cache::Hotness counted = cache::Hotness::load(file);
    if (counted.num_nodes() != num_nodes) {
      throw base::Error({file, fmt::format("counts of {} nodes", num_nodes), fmt::format("{}", counted.num_nodes()),
                         "they are of another data set"});
    }
    reads.resize(static_cast<std::size_t>(num_nodes));
    std::ranges::transform(reads, counted.node_reads(), reads.begin(), [](uint32_t before, uint32_t more) {
      return static_cast<uint32_t>(std::min(uint64_t{before} + more, uint64_t{UINT32_MAX}));
    });
  }
  return reads;
}

// Rows of all types that every clique's GPUs find in a slab.
cache::RowBits cached_rows(const cache::Plan& plan, int64_t num_nodes) {
  constexpr auto kRows = static_cast<std::size_t>(cache::Kind::kFeature);
  cache::RowBits in_all;
  for (std::size_t clique = 0; clique < plan.cliques.size(); ++clique) {
    const std::vector<uint32_t>& rows = plan.cliques[clique].rows[kRows].nodes;
    auto num_found = std::ssize(rows);
    for (const int gpu : plan.cliques[clique].gpus) {
      num_found = std::min(num_found, plan.gpus[static_cast<std::size_t>(gpu)].slabs[kRows].num_entries);
    }
    cache::RowBits found(num_nodes);
    for (const uint32_t row : std::span(rows).first(static_cast<std::size_t>(num_found))) {
      if (clique == 0 || in_all.has(row)) found.choose(row);
    }
    in_all = std::move(found);
  }
  return in_all;
}

cache::RowBits part_of(const cache::RowBits& rows, const NodeRange& type) {
  cache::RowBits part(type.count);
  for (int64_t row = 0; row < type.count; ++row) {
    if (rows.has(type.first + row)) part.choose(row);
  }
  return part;
}

// Threads that read the rows, and the memory in which they do.
struct Readers {
  int count;
  int64_t bytes;
};

// At most a 16th of the memory for rows is for reading others.
Readers readers_of(const Options& options, const GraphView& graph, const cache::RowPeers* peers) {
  int64_t each = 0;
  for (const NodeRange& type : types_with_rows(graph)) {
    const ibp::EncodedRef& rows = type.encoded->encoded().ref;
    each = std::max(each, peers ? cache::reply_buffer_bytes(rows) : cache::read_buffer_bytes(rows));
  }
  const int most = peers ? peers->num_threads() : cache::kReadThreads;
  const int64_t wanted = options.host_bytes < 0 ? most : options.host_bytes / 16 / each;
  const int64_t count = std::clamp<int64_t>(wanted, std::min(most, cache::kLeastReadThreads), most);
  return {static_cast<int>(count), count * each};
}

// A 16th of the memory for rows at most, all tables and GPUs together, and what is enough for any drive.
int64_t staging_of(const Options& options, const GraphView& graph) {
  constexpr int64_t kMostBytes = 64 << 20;
  const std::vector<NodeRange> types = types_with_rows(graph);
  int64_t bytes = kMostBytes;
  if (options.host_bytes >= 0) {
    bytes = std::min(bytes, options.host_bytes / 16 / (std::ssize(types) * options.num_ranks));
  }
  for (const NodeRange& type : types) {
    bytes = std::max(bytes, cache::least_staging_bytes(type.encoded->encoded().ref));
  }
  return bytes;
}

// Of GPUs alone.
int64_t all_staging_bytes(const Options& options, const GraphView& graph) {
  if (options.device == "cpu") return 0;
  return std::ssize(types_with_rows(graph)) * options.num_ranks * cache::pinned_bytes(staging_of(options, graph));
}

// What the rows of which this machine is the owner take in memory.
int64_t bytes_of_own(const std::vector<FarTable>& tables, const std::vector<cache::RowBits>& own) {
  int64_t bytes = 0;
  for (std::size_t type = 0; type < own.size(); ++type) {
    for (int64_t row = 0; row < own[type].num_rows(); ++row) {
      if (own[type].has(row)) bytes += cache::RowSubset::bytes_of(tables[type].rows->encoded().ref, row);
    }
  }
  return bytes;
}

// For rows that may, but need not be in memory. `beside`: bytes of what must be.
int64_t room_for_rows(const Options& options, int64_t beside, bool is_partitioned) {
  const int64_t available = base::available_host_bytes();
  if (options.host_bytes >= 0 && options.host_bytes < beside) {
    const char* what = is_partitioned ? "for this machine's part of the rows, and what finds the others"
                                      : "for what finds rows on a disk";
    throw base::Error({"--host-bytes", fmt::format("at least {}, {}", in_words(beside), what),
                       in_words(options.host_bytes), "raise --host-bytes"});
  }
  if (options.host_bytes > available) {
    throw base::Error({"--host-bytes", fmt::format("at most {}, the host memory available", in_words(available)),
                       in_words(options.host_bytes), "use less --host-bytes"});
  }
  if (beside > available) {
    throw base::Error({"host memory", fmt::format("{} for this machine's part of the rows", in_words(beside)),
                       fmt::format("{} available", in_words(available)), "use more machines"});
  }
  return options.host_bytes < 0 ? 0 : options.host_bytes - beside;
}

cache::RowBits own_rows(int64_t num_rows, const cache::RowPeers& peers) {
  cache::RowBits own(num_rows);
  for (int64_t row = 0; row < num_rows; ++row) {
    if (cache::owner_of(row, peers.num_machines()) == peers.own()) own.choose(row);
  }
  return own;
}

// Rows of `more` are added; neither is counted.
void add(cache::RowBits& rows, const cache::RowBits& more) {
  for (int64_t row = 0; row < more.num_rows(); ++row) {
    if (more.has(row)) rows.choose(row);
  }
}

}  // namespace

std::unique_ptr<cache::OtherMachines> other_machines(const Options& options) {
  const RowOwners& owners = options.row_owners;
  if (owners.hosts.empty()) return nullptr;
  std::vector<cache::MachineAddress> machines;
  for (std::size_t i = 0; i < owners.hosts.size(); ++i) {
    machines.push_back({owners.names[i], owners.hosts[i], owners.ports[i]});
  }
  const auto patience = std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(owners.seconds));
  return std::make_unique<cache::OtherMachines>(std::move(machines), cache::RunIdentity{owners.key, owners.own, 0},
                                                base::FileDescriptor(owners.listener), patience);
}

uint32_t tables_digest(const GraphView& graph) {
  std::vector<ibp::EncodedRef> tables;
  for (const NodeRange& type : types_of(graph)) {
    tables.push_back(type.encoded ? type.encoded->encoded().ref : ibp::EncodedRef{});
  }
  return cache::tables_digest(tables);
}

bool has_far_tier(const Options& options, const GraphView& graph) {
  const bool is_partitioned = !options.row_owners.hosts.empty();
  int64_t bytes = 0;
  for (const NodeRange& type : types_with_rows(graph)) bytes += bytes_of_all(type);
  if (!is_partitioned) {
    if (options.host_bytes < 0 || graph.rows_in == channel::RowsIn::kTable) return false;
    if (bytes <= options.host_bytes) return false;
  }
  const bool encoded = graph.coded_host_rows && std::ranges::all_of(types_with_rows(graph), [](const NodeRange& type) {
                         return type.encoded && !type.encoded->file().empty();
                       });
  if (encoded) return graph.rows_in != channel::RowsIn::kTable;
  throw base::Error(
      {is_partitioned ? "--features partitioned" : "--host-bytes " + in_words(options.host_bytes),
       "feature rows that stay encoded in host memory, of which others can stay elsewhere",
       fmt::format("{} of raw rows", in_words(bytes)),
       fmt::format("encode them with: cohort dataset prepare {}; and use --compress auto", options.dataset.string())});
}

std::vector<FarTable> far_tables(const Options& options, const GraphView& graph, const cache::Plan* plan,
                                 const std::shared_ptr<cache::RowPeers>& peers) {
  const Readers readers = readers_of(options, graph, peers.get());
  const auto threads = std::make_shared<cache::ReadThreads>(readers.count);
  const std::vector<NodeRange> types = types_of(graph);
  const cache::RowBits cached = plan ? cached_rows(*plan, graph.num_nodes) : cache::RowBits();
  std::vector<FarTable> tables(types.size());
  std::vector<cache::RowBits> elsewhere(types.size()), own(types.size());
  std::vector<cache::HostTable> choices;
  int64_t beside = readers.bytes + all_staging_bytes(options, graph);
  for (std::size_t type = 0; type < types.size(); ++type) {
    cache::HostTable& choice = choices.emplace_back(types[type].count);
    if (types[type].row_bytes == 0) continue;
    FarTable& table = tables[type];
    if (peers) {
      table.rows =
          std::make_shared<const cache::RemoteRows>(types[type].encoded, static_cast<uint32_t>(type), peers, threads);
      own[type] = own_rows(types[type].count, *peers);
    } else {
      table.rows = std::make_shared<const cache::DiskRows>(types[type].encoded, threads);
    }
    beside += table.rows->directory_bytes() + cache::bitmap_bytes(types[type].count);
    choice.rows = &table.rows->encoded().ref;
    if (cached.num_rows() == 0 && !peers) continue;
    elsewhere[type] = cached.num_rows() > 0 ? part_of(cached, types[type]) : cache::RowBits(types[type].count);
    add(elsewhere[type], own[type]);
    choice.elsewhere = &elsewhere[type];
  }
  const int64_t room = room_for_rows(options, beside + bytes_of_own(tables, own), peers != nullptr);
  auto chosen = cache::rows_in_host_memory(choices, counted_reads(options, graph.num_nodes), room);
  for (std::size_t type = 0; type < types.size(); ++type) {
    if (own[type].num_rows() > 0) {
      add(own[type], chosen[type]);
      own[type].count();
      chosen[type] = std::move(own[type]);
    }
    tables[type].in_memory = std::move(chosen[type]);
  }
  return tables;
}

int64_t staging_bytes(const Options& options, const GraphView& graph) { return staging_of(options, graph); }

void tell(const StartLog& log, const std::vector<FarTable>& tables) {
  int64_t bytes = 0;
  const char* part = "leaving rows on the disk";
  for (const FarTable& table : tables) {
    if (!table.rows) continue;
    const cache::RowSubset in_memory(table.rows->encoded(), table.in_memory);
    bytes += table.rows->encoded().stored_bytes() - in_memory.bytes();
    if (table.rows->tier() == cache::Tier::kRemote) part = "leaving rows to other machines";
    const auto* disk = dynamic_cast<const cache::DiskRows*>(table.rows.get());
    if (!disk || disk->file().is_direct()) continue;
    part = "leaving rows on the disk (its file system refuses O_DIRECT: reads go through the page cache)";
  }
  log.begin(part, bytes);
}

std::vector<std::shared_ptr<const cache::TieredRows>> tiered_rows(std::vector<FarTable> tables, const StartLog& log) {
  tell(log, tables);
  std::vector<std::shared_ptr<const cache::TieredRows>> tiered;
  for (FarTable& table : tables) {
    auto& rows = tiered.emplace_back();
    if (!table.rows) continue;
    rows = std::make_shared<const cache::TieredRows>(table.rows, std::move(table.in_memory));
  }
  return tiered;
}

}  // namespace cohort::sampler
