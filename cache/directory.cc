#include "cache/directory.h"

#include <algorithm>

#include "base/check.h"

namespace cohort::cache {
DirectoryArrays::DirectoryArrays(std::span<const uint64_t> entry_of) : words((entry_of.size() + 31) / 32) {
  const auto num_words = static_cast<int64_t>(words.size());
  const auto of_word = [&](int64_t word) {
    const auto first = static_cast<std::size_t>(word) * 32;
    return entry_of.subspan(first, std::min<std::size_t>(32, entry_of.size() - first));
  };
#pragma omp parallel for
  for (int64_t word = 0; word < num_words; ++word) {
    const auto of = of_word(word);
    uint64_t flags = 0;
    for (std::size_t i = 0; i < of.size(); ++i) flags |= uint64_t{of[i] != kNoEntry} << i;
    words[static_cast<std::size_t>(word)] = flags;
  }
  uint64_t before = 0;
  for (uint64_t& word : words) {
    const auto flags = static_cast<uint32_t>(word);
    word |= before << 32;
    before += static_cast<uint64_t>(__builtin_popcount(flags));
  }
  entries.resize(before);
#pragma omp parallel for
  for (int64_t word = 0; word < num_words; ++word) {
    uint64_t next = words[static_cast<std::size_t>(word)] >> 32;
    for (const uint64_t entry : of_word(word)) {
      if (entry != kNoEntry) entries[next++] = entry;
    }
  }
}

Directory::Directory(const DirectoryArrays& arrays)
    : words_(base::upload(arrays.words, "copy a directory to the GPU")),
      entries_(base::upload(arrays.entries, "copy a directory to the GPU")) {}

}  // namespace cohort::cache
