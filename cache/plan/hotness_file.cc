// The file of counts: FORMAT.md.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <numeric>
#include <type_traits>

#include "base/bits.h"
#include "base/check.h"
#include "base/checksum.h"
#include "base/file_descriptor.h"
#include "base/format.h"
#include "base/whole_file.h"
#include "cache/plan/hotness.h"

namespace cohort::cache {
namespace {

constexpr uint32_t kVersion = 3;
constexpr uint32_t kMaxPromised = 4096;
constexpr std::size_t kMaxHops = 16;
constexpr const char* kCure = "remove the file: it is made again when it is missing";

struct Header {
  std::array<char, 8> magic = {'C', 'H', 'R', 'T', 'H', 'O', 'T', '1'};
  uint32_t version = kVersion;
  uint32_t num_hops = 0;
  uint64_t dataset = 0;
  uint64_t split = 0;
  uint64_t seed = 0;
  uint64_t num_nodes = 0;
  uint64_t num_batches = 0;
  uint64_t max_batch_nodes = 0;
  uint64_t max_batch_edges = 0;
  uint32_t batch_size = 0;
  uint32_t data_crc = 0;
  std::array<int32_t, kMaxHops> fanout{};
  std::array<uint32_t, 3> num_promised{};  // the last: of an array that earlier versions wrote
  uint32_t zero = 0;
  uint64_t own_num_lists = 0;  // 0: as many lists as nodes
  std::array<uint32_t, 7> zeros{};
  uint32_t header_crc = 0;  // of the 196 bytes before it
};
static_assert(sizeof(Header) == 200 && std::is_trivially_copyable_v<Header>);

using base::bytes_of;

uint64_t num_lists_of(const Header& header) { return header.own_num_lists ? header.own_num_lists : header.num_nodes; }

uint32_t crc_of(const Header& header) { return base::crc32c(bytes_of(header).first(sizeof header - 4)); }

// The arrays in the order of the file.
template <typename Reads, typename Edges, typename Promised, typename Visit>
void for_arrays(Edges& edges_read, Reads& node_reads, Reads& expansions, Promised& promised, Visit visit) {
  visit(std::span(edges_read));
  visit(std::span(node_reads));
  visit(std::span(expansions));
  for (auto& promise : promised) visit(std::span(promise));
}

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& expected, const std::string& found) {
  throw base::Error({path.string(), expected, found, kCure});
}

void check_crc(const char* what, uint32_t found, uint32_t stored, const std::filesystem::path& path) {
  if (found == stored) return;
  refuse(path, base::format("{} with checksum {:08x}, as the file says", what, stored),
         base::format("checksum {:08x}", found));
}

// Numbers that the program keeps in signed integers.
void check_counts(const Header& header, const std::filesystem::path& path) {
  for (const uint64_t count : {header.num_batches, header.max_batch_nodes, header.max_batch_edges}) {
    if (count > INT64_MAX) refuse(path, "counts of less than 2^63", base::format("{}", count));
  }
}

void check(const Header& header, const std::filesystem::path& path, std::uintmax_t file_bytes) {
  if (header.magic != Header{}.magic) refuse(path, "a file that begins with CHRTHOT1", "other bytes at its beginning");
  if (header.version != kVersion) {
    refuse(path, base::format("version {}", kVersion), base::format("version {}", header.version));
  }
  check_crc("a header", crc_of(header), header.header_crc, path);
  const auto& promised = header.num_promised;
  const uint64_t num_promised = std::accumulate(promised.begin(), promised.end(), uint64_t{0});
  const uint64_t num_lists = num_lists_of(header);
  const uint64_t bytes = sizeof(Header) + header.num_nodes * 4 + num_lists * 12 + num_promised * sizeof(double);
  const bool too_many = header.num_nodes > UINT32_MAX || num_lists > UINT32_MAX || header.num_hops > kMaxHops ||
                        *std::max_element(promised.begin(), promised.end()) > kMaxPromised;
  if (too_many || file_bytes != bytes) {
    refuse(path, base::format("{} bytes for {} nodes and {} lists", bytes, header.num_nodes, num_lists),
           base::format("{} bytes", file_bytes));
  }
  check_counts(header, path);
}

// With all threads.
void read(const base::FileDescriptor& file, const std::filesystem::path& path, std::size_t offset,
          std::span<std::byte> to) {
  constexpr std::size_t kPiece = std::size_t{4} << 20;
  bool complete = true;
#pragma omp parallel for schedule(dynamic) reduction(&& : complete) if (to.size() > kPiece)
  for (std::size_t first = 0; first < to.size(); first += kPiece) {
    const std::span<std::byte> piece = to.subspan(first, std::min(kPiece, to.size() - first));
    const ssize_t done = pread(file.get(), piece.data(), piece.size(), static_cast<off_t>(offset + first));
    complete = complete && done == std::ssize(piece);
  }
  if (!complete) refuse(path, "as many bytes as its header says", "a shorter file");
}

// A file whose header is checked, at the begin of its counts.
struct CountsFile {
  HotnessKey key() const {
    HotnessKey key{header.dataset, header.split, {}, header.batch_size};
    key.fanout.assign(header.fanout.begin(), header.fanout.begin() + header.num_hops);
    return key;
  }
  HotnessTotals totals() const {
    return {static_cast<int64_t>(header.num_batches), static_cast<int64_t>(header.max_batch_nodes),
            static_cast<int64_t>(header.max_batch_edges)};
  }
  base::FileDescriptor file;
  Header header;
};

CountsFile open_counts(const std::filesystem::path& path, const HotnessKey* expected) {
  CountsFile counts{base::FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), {}};
  if (!counts.file) base::fail_errno(path.string(), "a file of access counts", errno);
  read(counts.file, path, 0, bytes_of(counts.header));
  check(counts.header, path, std::filesystem::file_size(path));
  if (expected && *expected != counts.key()) {
    refuse(path, "counts of this data set, split, fanout and batch size", "counts of another of these");
  }
  return counts;
}

}  // namespace

void Hotness::save(const std::filesystem::path& path) const {
  base::require(key_.fanout.size() <= kMaxHops, "at most 16 hops");
  Header header;
  header.num_hops = static_cast<uint32_t>(key_.fanout.size());
  header.dataset = key_.dataset;
  header.split = key_.split;
  header.seed = seed_;
  header.num_nodes = static_cast<uint64_t>(num_nodes());
  if (num_lists() != num_nodes()) header.own_num_lists = static_cast<uint64_t>(num_lists());
  header.num_batches = static_cast<uint64_t>(totals_.num_batches);
  header.max_batch_nodes = static_cast<uint64_t>(totals_.max_batch_nodes);
  header.max_batch_edges = static_cast<uint64_t>(totals_.max_batch_edges);
  header.batch_size = key_.batch_size;
  std::copy(key_.fanout.begin(), key_.fanout.end(), header.fanout.begin());
  std::transform(promised_.begin(), promised_.end(), header.num_promised.begin(),
                 [](const std::vector<double>& promise) { return static_cast<uint32_t>(promise.size()); });
  for_arrays(edges_read_, node_reads_, expansions_, promised_,
             [&](auto array) { header.data_crc = base::crc32c_parallel(std::as_bytes(array), header.data_crc); });
  header.header_crc = crc_of(header);
  base::WholeFile file(path);
  file.write(bytes_of(header));
  for_arrays(edges_read_, node_reads_, expansions_, promised_, [&](auto array) { file.write(std::as_bytes(array)); });
  file.commit();
}

HotnessTotals Hotness::load_totals(const std::filesystem::path& path, const HotnessKey* expected) {
  return open_counts(path, expected).totals();
}

Hotness Hotness::load(const std::filesystem::path& path, const HotnessKey* expected) {
  const CountsFile file = open_counts(path, expected);
  const Header& header = file.header;
  Hotness hotness(file.key(), 0, 0, header.seed);
  hotness.totals_ = file.totals();
  hotness.edges_read_.resize(num_lists_of(header));
  hotness.node_reads_.resize(header.num_nodes);
  hotness.expansions_.resize(num_lists_of(header));
  std::array<std::vector<double>, 3> promised;
  for (std::size_t i = 0; i < promised.size(); ++i) promised[i].resize(header.num_promised[i]);
  uint32_t crc = 0;
  std::size_t offset = sizeof header;
  for_arrays(hotness.edges_read_, hotness.node_reads_, hotness.expansions_, promised, [&](auto array) {
    read(file.file, path, offset, std::as_writable_bytes(array));
    offset += array.size_bytes();
    crc = base::crc32c_parallel(std::as_bytes(array), crc);
  });
  check_crc("counts", crc, header.data_crc, path);
  std::move(promised.begin(), promised.begin() + kNumKinds, hotness.promised_.begin());
  return hotness;
}

}  // namespace cohort::cache
