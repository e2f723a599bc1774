// Asking for memory at scattered places ahead of the loop that needs it.
#pragma once

#include <cstddef>
#include <type_traits>

namespace cohort::base {

inline constexpr std::size_t kPrefetchAhead = 24;  // turns of a loop: what comes from memory then takes some 100 ns

// Asks for table[index[i + kPrefetchAhead]], if there is one among `count` of them; a table that is not const will be
// written to.
template <typename T, typename Index>
inline void prefetch_ahead(T* table, const Index* index, std::size_t i, std::size_t count) {
  if (i + kPrefetchAhead < count) __builtin_prefetch(table + index[i + kPrefetchAhead], !std::is_const_v<T>);
}

// A turn of a loop over `index` that needs something of index[i]: calls ask(index[i + kPrefetchAhead]) if there is one.
template <typename Indices, typename Ask>
inline void ask_ahead(const Indices& index, std::size_t i, const Ask& ask) {
  if (i + kPrefetchAhead < index.size()) ask(index[i + kPrefetchAhead]);
}

}  // namespace cohort::base
