// Sorting more keys than memory holds: sorted runs in a temporary file, merged at the end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "base/mapping.h"
#include "base/temporary_file.h"

namespace cohort::dataset {

using WideKey = unsigned __int128;

// Sorts `keys` in ascending order by a radix sort of all threads, the same for any number of them. `scratch` has as
// many elements; which of the two holds the result is returned, the other is left with anything. Throws Interrupted
// when a stop was asked for. Key: uint64_t or WideKey.
template <typename Key>
std::span<Key> sort_keys(std::span<Key> keys, std::span<Key> scratch, const std::stop_token& stop);

// Key: uint64_t or WideKey.
template <typename Key>
class BasicKeySorter {
 public:
  // Sorted keys, some at a time.
  using Use = std::function<void(std::span<const Key>)>;

  // `folder` gets the temporary file, when there is more than memory holds. `unique`: equal keys come once.
  BasicKeySorter(std::filesystem::path folder, std::size_t memory_bytes, bool unique);

  // Where to write the next keys: at least `least`, at most `wanted`. Writes a run first when memory is full.
  std::span<Key> room(std::size_t wanted, std::size_t least, const std::stop_token& stop);
  // The first `count` elements of the last room() are keys now.
  void added(std::size_t count) noexcept { count_ += count; }

  // Hands all keys to `use` in ascending order, and forgets them.
  void merge(const Use& use, const std::stop_token& stop);

  std::size_t num_runs() const noexcept { return runs_.size(); }  // in the temporary file

 private:
  struct Run {
    int64_t offset;  // bytes
    std::size_t count;
  };
  void sort(const std::stop_token& stop);
  void write_run(const std::stop_token& stop);
  void merge_runs(const Use& use, const std::stop_token& stop);
  Key* keys() const noexcept { return reinterpret_cast<Key*>(keys_.data()); }

  std::filesystem::path folder_;
  std::size_t capacity_;  // keys
  bool unique_;
  base::Mapping keys_, scratch_;  // Key [capacity]; pages come when they are first touched
  std::size_t count_ = 0;         // keys in memory
  std::optional<base::TemporaryFile> file_;
  std::vector<Run> runs_;
};

using KeySorter = BasicKeySorter<uint64_t>;
using WideKeySorter = BasicKeySorter<WideKey>;

}  // namespace cohort::dataset
