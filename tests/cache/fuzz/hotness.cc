// Any bytes as a file of access counts. Byte 0: 1 makes the checksums right, so that damage behind them is reached.
#include <cstring>

#include "base/check.h"
#include "base/checksum.h"
#include "cache/plan/hotness.h"
#include "tests/dataset/temporary_folder.h"
#include "tests/fuzz/fuzz.h"

namespace cohort::fuzz {
namespace {

constexpr std::size_t kHeaderBytes = 200, kDataCrcAt = 76;  // cache/FORMAT.md

void put_crc(std::vector<std::byte>& image, std::size_t at, uint32_t crc) {
  std::memcpy(image.data() + at, &crc, sizeof crc);
}

void repair_checksums(std::vector<std::byte>& image) {
  if (image.size() < kHeaderBytes) return;
  put_crc(image, kDataCrcAt, base::crc32c(std::span(image).subspan(kHeaderBytes)));
  put_crc(image, kHeaderBytes - 4, base::crc32c(std::span(image).first(kHeaderBytes - 4)));
}

// Counts of a few batches and a trial.
cache::Hotness make_counts() {
  cache::Hotness counts({11, 22, {2, 1}, 3}, 6, 8, 5);
  const std::vector<int64_t> nodes = {0, 3, 5}, lists = {0, 7}, picks = {2, 1}, others = {3, 1};
  for (int i = 0; i < 3; ++i) counts.add({nodes, lists, picks});
  counts.begin_trial();
  counts.add({others, std::span(lists).last(1), std::span(picks).last(1)});
  counts.end_trial();
  counts.add({others, std::span(lists).last(1), std::span(picks).last(1)});
  return counts;
}

std::string saved(const cache::Hotness& counts) {
  const dataset::TemporaryFolder folder;
  counts.save(folder / "counts");
  return dataset::read_bytes(folder / "counts");
}

}  // namespace

std::vector<std::string> seeds() {
  const std::string counts = saved(make_counts()), empty = saved(cache::Hotness({1, 2, {}, 1}, 0, 0, 0));
  return {std::string(1, 0) + counts, std::string(1, 1) + counts, std::string(1, 1) + empty};
}

void run(std::span<const std::byte> input) {
  if (input.empty()) return;
  std::vector<std::byte> image(input.begin() + 1, input.end());
  const bool repaired = std::to_integer<int>(input[0]) & 1;
  if (repaired) repair_checksums(image);
  const MemoryFile file(image);
  try {
    const cache::Hotness counts = cache::Hotness::load(file.path());
    demand(counts.num_batches() >= 0 && counts.max_batch_nodes() >= 0 && counts.max_batch_edges() >= 0,
           "numbers that are none below 0");
  } catch (const base::Error&) {
  }
}

}  // namespace cohort::fuzz
