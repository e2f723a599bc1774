// Layer sampling on the CPU: the edges of a list that come from the nodes with the smallest numbers (NodeNumbers in
// draw.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/csc_ref.h"
#include "base/random_many.h"
#include "sampler/draw.h"

namespace cohort::sampler {

// Draws from lists, by one thread; its memory is of use for all of them.
class LayerDraw {
 public:
  // Of which list, and how many of its edges are drawn.
  struct List {
    const base::CscRef& lists;
    int64_t first_source;  // the node that lists call 0
    int64_t begin, end;    // of its edges
    const ExcludedRef& excluded;
    int64_t picks;  // fewer than may be drawn
    // With importance sampling: least degrees of nodes, as the list calls them, and their sums over the list.
    const uint32_t* least = nullptr;
    LeastDegrees of_candidates{};
  };

  // Writes the drawn edges, ascending: int64 [picks]; with importance sampling their shares, too: float32 [picks].
  void draw(const List& list, const NodeNumbers& numbers, int hop, int64_t* drawn, float* shares);

 private:
  static constexpr std::size_t kAtOnce = 16 * base::kRandomAtOnce;  // neighbours

  template <typename Index>
  void keep(const Index* neighbours, const List& list, const NodeNumbers& numbers, int hop);
  template <typename Index>
  void number(const Index* neighbours, std::size_t count, const List& list, const NodeNumbers& numbers, int hop);
  void leave_out(const ExcludedRef& excluded);
  // The largest number that is drawn, and how many of those that are equal to it.
  struct Most {
    uint64_t number;
    int64_t equal;
  };
  Most most_drawn(int64_t picks) const;
  Most without_last(Most most) const;
  void put_smallest(const List& list, Most most, int64_t* drawn) const;
  void put_shares(const List& list, uint64_t next, const int64_t* drawn, float* shares) const;

  // Of some neighbours in a row: the nodes, and what their numbers follow from (NodeNumbers::which).
  std::array<uint64_t, kAtOnce> node_{}, which_{}, number_{};
  int64_t in_a_row_ = 0;  // how many times the node before these stands there
  // Of numbers that are at most most_: uint64, int64 [num_kept_, or more], by ascending position in the list.
  uint64_t most_ = 0;
  std::size_t num_kept_ = 0;
  std::vector<uint64_t> kept_;
  std::vector<int64_t> position_;
};

}  // namespace cohort::sampler
