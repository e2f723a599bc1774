// Nodes with texts for names.
#pragma once

#include <cstdint>
#include <span>
#include <stop_token>
#include <string_view>

#include "base/large_page_vector.h"

namespace cohort::dataset {

// Texts as Arrow has them: text i is bytes[offsets[i], offsets[i + 1]).
struct Texts {
  std::span<const int64_t> offsets;  // [n + 1]
  const char* bytes;
  int64_t size() const noexcept { return static_cast<int64_t>(offsets.size()) - 1; }
  std::string_view operator[](int64_t i) const noexcept {
    const int64_t* const begin = offsets.data() + i;
    return {bytes + begin[0], static_cast<std::size_t>(begin[1] - begin[0])};
  }
};

// Finds the node of an id that is a text.
class TextMap {
 public:
  // Text i is node i; of equal ones, the first is found. The texts are copied.
  TextMap(Texts ids, const std::stop_token& stop);
  // nodes[i] = the node of texts[i], or -1: fills nodes, int64 [texts.size()].
  void find(Texts texts, std::span<int64_t> nodes, const std::stop_token& stop) const;
  int64_t distinct() const noexcept { return distinct_; }  // texts
  int64_t bytes() const noexcept { return static_cast<int64_t>(slots_.size() * sizeof(Slot) + records_.size()); }

 private:
  // 0: empty; else the upper bits of the text's hash, and below them where its record begins, plus one.
  using Slot = uint64_t;
  struct Found {
    std::size_t place;  // of the slot
    int64_t node;       // -1: the slot is empty
  };
  // The first place from `place` on that is empty, or whose text may have this hash.
  inline std::size_t candidate(uint64_t hash, std::size_t place) const noexcept;
  // From a candidate on.
  inline Found lookup(std::string_view text, uint64_t hash, std::size_t place) const noexcept;
  void find_some(Texts texts, int64_t begin, std::size_t count, int64_t* nodes) const noexcept;
  std::size_t next(std::size_t place) const noexcept { return (place + 1) & (slots_.size() - 1); }
  std::size_t home(uint64_t hash) const noexcept { return hash & (slots_.size() - 1); }

  base::LargePageVector<Slot> slots_;    // [a power of two]; at least half of them are empty
  base::LargePageVector<char> records_;  // of each text: its node and its length, uint32 each, and its bytes
  int64_t distinct_ = 0;
};

}  // namespace cohort::dataset
