#include "sampler/far_tier.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "base/host_memory.h"
#include "base/process.h"
#include "cache/disk_rows.h"
#include "cache/host_share.h"
#include "cache/plan/hotness.h"
#include "cache/plan/row_owner.h"
#include "cache/remote/remote_rows.h"
#include "cache/row_subset.h"
#include "cache/staged_reader.h"

namespace cohort::sampler {
namespace {

int64_t bytes_of_all(const NodeRange& type) {
  return type.rows.encoded ? type.rows.encoded->encoded().stored_bytes() : type.count * type.rows.row_bytes;
}

std::vector<NodeRange> types_with_rows(const GraphView& graph) {
  std::vector<NodeRange> types = graph.types;
  std::erase_if(types, [](const NodeRange& type) { return type.rows.row_bytes == 0; });
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
      throw base::Error({file, base::format("counts of {} nodes", num_nodes), base::format("{}", counted.num_nodes()),
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

// Threads that read the rows, and the memory in which they do.
struct Readers {
  int count = 0;
  int64_t bytes = 0;
};

// Of a disk, or of other machines. At most a 16th of the memory for rows is for reading others.
Readers readers_of(const Options& options, const GraphView& graph, int most,
                   int64_t (*buffer_bytes)(const ibp::EncodedRef&)) {
  int64_t each = 0;
  for (const NodeRange& type : types_with_rows(graph)) {
    each = std::max(each, buffer_bytes(type.rows.encoded->encoded().ref));
  }
  const int64_t wanted = options.host_bytes < 0 ? most : options.host_bytes / 16 / each;
  const int64_t count = std::clamp<int64_t>(wanted, std::min(most, cache::kLeastReadThreads), most);
  return {static_cast<int>(count), count * each};
}

// Of GPUs alone.
int64_t all_staging_bytes(const Options& options, const GraphView& graph) {
  if (options.device == "cpu") return 0;
  return std::ssize(types_with_rows(graph)) * options.num_ranks * cache::pinned_bytes(staging_bytes(options, graph));
}

// For rows that may, but need not be in memory. `least`: bytes of what must be; `what` it is.
int64_t room_for_rows(const Options& options, int64_t least, const char* what) {
  const int64_t available = base::available_host_bytes();
  if (options.host_bytes < 0) {
    base::demand_bytes(least, available, "host memory", what,
                       "use more machines, or --host-bytes, beyond which rows stay on the disk");
    return 0;
  }
  if (options.host_bytes < least) {
    throw base::Error({"--host-bytes", base::format("at least {},{}", base::format_bytes(least), what),
                       base::format_bytes(options.host_bytes), "raise --host-bytes"});
  }
  if (options.host_bytes > available) {
    throw base::Error({"--host-bytes",
                       base::format("at most {}, the host memory available", base::format_bytes(available)),
                       base::format_bytes(options.host_bytes), "use less --host-bytes"});
  }
  return options.host_bytes - least;
}

// The parts of a table's rows of which this machine is the owner, and the others are.
struct Parts {
  cache::RowBits own, others;
  int64_t own_bytes = 0;  // in memory
};

Parts parts_of(const ibp::EncodedRef& rows, const cache::RowPeers& peers) {
  Parts parts{cache::RowBits(rows.num_rows), cache::RowBits(rows.num_rows)};
  for (int64_t row = 0; row < rows.num_rows; ++row) {
    const bool is_own = cache::owner_of(row, peers.num_machines()) == peers.own();
    (is_own ? parts.own : parts.others).choose(row);
    if (is_own) parts.own_bytes += cache::RowSubset::bytes_of(rows, row);
  }
  return parts;
}

// The rows of `more` from `first` on are added; neither is counted.
void add(cache::RowBits& rows, const cache::RowBits& more, int64_t first = 0) {
  for (int64_t row = 0; row < rows.num_rows(); ++row) {
    if (more.has(first + row)) rows.choose(row);
  }
}

// Where far rows come from.
struct Sources {
  std::shared_ptr<cache::RowPeers> peers{};                            // null: no other machines
  std::shared_ptr<cache::ReadThreads> disk_threads{}, peer_threads{};  // null: not from there

  FarTable table(const std::shared_ptr<const cache::RowFile>& file, std::size_t type) const {
    FarTable table;
    if (disk_threads) {  // a machine that asks for rows of this disk hears in time what is wrong with it
      const auto patience = peers ? std::min<std::chrono::milliseconds>(cache::kDiskPatience, peers->patience() / 2)
                                  : cache::kDiskPatience;
      table.disk = std::make_shared<const cache::DiskRows>(file, disk_threads, ::pread, patience);
      table.rows = table.disk;
    }
    if (!peers) return table;
    table.rows =
        std::make_shared<const cache::RemoteRows>(file, static_cast<uint32_t>(type), peers, peer_threads, table.disk);
    return table;
  }
};

}  // namespace

std::unique_ptr<cache::OtherMachines> other_machines(const Options& options) {
  const RowOwners& owners = options.row_owners;
  if (owners.hosts.empty()) return nullptr;
  base::raise_descriptor_limit();  // of connections
  std::vector<cache::MachineAddress> machines;
  for (std::size_t i = 0; i < owners.hosts.size(); ++i) {
    machines.push_back({owners.names[i], owners.hosts[i], owners.ports[i]});
  }
  const auto patience = std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(owners.seconds));
  return std::make_unique<cache::OtherMachines>(std::move(machines), cache::RunIdentity{owners.key, owners.own, 0},
                                                base::FileDescriptor(owners.listener), patience);
}

// A 16th of the memory for rows at most, all tables and GPUs together, and what is enough for any drive; of other
// machines, what comes in 20 ms over a link of 100 Gbit/s, while a GPU is busy with other things.
int64_t staging_bytes(const Options& options, const GraphView& graph) {
  constexpr int64_t kOfDisks = 64 << 20, kOfMachines = 256 << 20;
  const std::vector<NodeRange> types = types_with_rows(graph);
  int64_t bytes = kOfDisks;
  if (!options.row_owners.hosts.empty()) bytes = std::max(bytes, kOfMachines / std::ssize(types));
  if (options.host_bytes >= 0) {
    bytes = std::min(bytes, options.host_bytes / 16 / (std::ssize(types) * options.num_ranks));
  }
  for (const NodeRange& type : types) {
    bytes = std::max(bytes, cache::least_staging_bytes(type.rows.encoded->encoded().ref));
  }
  return bytes;
}

uint32_t tables_digest(const GraphView& graph) {
  std::vector<ibp::EncodedRows> tables;
  for (const NodeRange& type : graph.types) {
    tables.push_back(type.rows.encoded ? type.rows.encoded->encoded() : ibp::EncodedRows{});
  }
  return cache::tables_digest(tables);
}

bool has_far_tier(const Options& options, const GraphView& graph) {
  const bool is_partitioned = !options.row_owners.hosts.empty();
  const std::vector<NodeRange> types = types_with_rows(graph);
  if (types.empty()) return false;
  int64_t bytes = 0;
  for (const NodeRange& type : types) bytes += bytes_of_all(type);
  if (!is_partitioned) {
    if (options.host_bytes < 0 || graph.rows_in == channel::RowsIn::kTable) return false;
    if (bytes <= options.host_bytes) return false;
  }
  const bool encoded = graph.coded_host_rows && std::ranges::all_of(types, [](const NodeRange& type) {
                         return type.rows.encoded && !type.rows.encoded->file().empty();
                       });
  if (encoded) return graph.rows_in != channel::RowsIn::kTable;
  throw base::Error(
      {is_partitioned ? "--feature-placement partitioned" : "--host-bytes " + base::format_bytes(options.host_bytes),
       "encoded feature rows in host memory", is_partitioned ? "raw rows" : base::format_bytes(bytes) + " of raw rows",
       base::format("encode them with: cohort dataset prepare {}; and use --compress auto", options.dataset.string())});
}

std::vector<FarTable> far_tables(const Options& options, const GraphView& graph, const cache::Plan* plan,
                                 const std::shared_ptr<cache::RowPeers>& peers) {
  const std::vector<NodeRange>& types = graph.types;
  std::vector<std::shared_ptr<const cache::RowFile>> files(types.size());
  std::vector<Parts> parts(types.size());
  int64_t beside = all_staging_bytes(options, graph), own_bytes = 0;
  for (std::size_t type = 0; type < types.size(); ++type) {
    if (types[type].rows.row_bytes == 0) continue;
    files[type] = std::make_shared<const cache::RowFile>(types[type].rows.encoded);
    const ibp::EncodedRef& rows = files[type]->encoded.ref;
    beside += cache::directory_bytes(rows) + cache::bitmap_bytes(types[type].count);
    if (peers) parts[type] = parts_of(rows, *peers);
    own_bytes += parts[type].own_bytes;
  }
  const Readers of_disk = readers_of(options, graph, cache::kReadThreads, cache::read_buffer_bytes);
  const Readers of_peers =
      peers ? readers_of(options, graph, peers->num_threads(), cache::reply_buffer_bytes) : Readers();
  beside += of_peers.bytes;
  const bool own_fits = options.host_bytes < 0 || options.host_bytes >= beside + own_bytes;
  const bool has_disk = !peers || (!own_fits && own_bytes > of_disk.bytes);
  const int64_t room =
      has_disk
          ? room_for_rows(options, beside + of_disk.bytes, " for the index of the rows and the buffers for reading")
          : room_for_rows(options, beside + own_bytes,
                          " for this machine's part of the rows, the index of all rows and the buffers for reading");
  Sources sources{.peers = peers};
  if (has_disk) sources.disk_threads = std::make_shared<cache::ReadThreads>(of_disk.count);
  if (peers) sources.peer_threads = std::make_shared<cache::ReadThreads>(of_peers.count);
  const cache::RowBits cached = plan ? cached_rows(*plan, graph.num_nodes) : cache::RowBits();
  std::vector<FarTable> tables(types.size());
  std::vector<cache::RowBits> elsewhere(types.size());
  std::vector<cache::HostTable> choices;
  for (std::size_t type = 0; type < types.size(); ++type) {
    cache::HostTable& choice = choices.emplace_back(cache::HostTable{.num_rows = types[type].count});
    if (!files[type]) continue;
    tables[type] = sources.table(files[type], type);
    if (peers && has_disk) {  // own rows alone, also those that every GPU here has: others ask for them
      elsewhere[type] = std::move(parts[type].others);
    } else {
      if (cached.num_rows() > 0 || peers) elsewhere[type] = cache::RowBits(types[type].count);
      if (cached.num_rows() > 0) add(elsewhere[type], cached, types[type].first);
      if (peers) add(elsewhere[type], parts[type].own);
    }
    choice.rows = &files[type]->encoded.ref;
    if (elsewhere[type].num_rows() > 0) choice.elsewhere = &elsewhere[type];
  }
  auto chosen = cache::rows_in_host_memory(choices, counted_reads(options, graph.num_nodes), room);
  for (std::size_t type = 0; type < types.size(); ++type) {
    if (peers && !has_disk && files[type]) {
      add(parts[type].own, chosen[type]);
      parts[type].own.count();
      chosen[type] = std::move(parts[type].own);
    }
    tables[type].in_memory = std::move(chosen[type]);
  }
  return tables;
}

void tell(const StartLog& log, const std::vector<FarTable>& tables) {
  int64_t bytes = 0;
  bool at_others = false, on_disk = false, is_direct = true;
  for (const FarTable& table : tables) {
    if (!table.rows) continue;
    const cache::RowSubset in_memory(table.rows->encoded(), table.in_memory);
    bytes += table.rows->encoded().stored_bytes() - in_memory.bytes();
    at_others = at_others || table.rows != table.disk;
    on_disk = on_disk || table.disk;
    is_direct = is_direct && (!table.disk || table.disk->disk().is_direct());
  }
  std::string part = at_others ? "leaving rows to other machines" : "leaving rows on the disk";
  if (at_others && on_disk) part += " and on the disk";
  if (!is_direct) part += " (its file system refuses O_DIRECT: reads go through the page cache)";
  log.begin(part.c_str(), bytes);
}

std::vector<std::shared_ptr<const cache::TieredRows>> tiered_rows(const std::vector<FarTable>& tables,
                                                                  const StartLog& log) {
  tell(log, tables);
  std::vector<std::shared_ptr<const cache::TieredRows>> tiered;
  for (const FarTable& table : tables) {
    auto& rows = tiered.emplace_back();
    if (table.rows) rows = std::make_shared<const cache::TieredRows>(table.rows, table.in_memory);
  }
  return tiered;
}

}  // namespace cohort::sampler
