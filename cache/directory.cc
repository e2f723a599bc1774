#include "cache/directory.h"

#include <algorithm>

#include "base/check.h"

namespace cohort::cache {

DirectoryArrays::DirectoryArrays(std::span<const uint64_t> entry_of) : cached(std::ssize(entry_of)) {
  const int64_t num_words = std::ssize(cached.words());
  // Calls use(node, entry) for the cached nodes of a word.
  const auto for_word = [&](int64_t word, const auto& use) {
    for (int64_t node = word * 32; node < std::min((word + 1) * 32, cached.num_rows()); ++node) {
      if (const uint64_t entry = entry_of[static_cast<std::size_t>(node)]; entry != kNoEntry) use(node, entry);
    }
  };
#pragma omp parallel for
  for (int64_t word = 0; word < num_words; ++word) {
    for_word(word, [&](int64_t node, uint64_t) { cached.choose(node); });
  }
  cached.count();
  entries.resize(static_cast<std::size_t>(cached.num_chosen()));
#pragma omp parallel for
  for (int64_t word = 0; word < num_words; ++word) {
    uint64_t next = cached.words()[static_cast<std::size_t>(word)] >> 32;
    for_word(word, [&](int64_t, uint64_t entry) { entries[next++] = entry; });
  }
}

Directory::Directory(const DirectoryArrays& arrays)
    : words_(base::upload(arrays.cached.words(), "copy a directory to the GPU")),
      entries_(base::upload(arrays.entries, "copy a directory to the GPU")) {}

}  // namespace cohort::cache
