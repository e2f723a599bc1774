#include "sampler/layer_draw.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/bits.h"

namespace cohort::sampler {
namespace {

int64_t likely_of(int64_t picks) { return picks + static_cast<int64_t>(3 * std::sqrt(static_cast<double>(picks))) + 4; }

// About k + 3 sqrt(k) + 4 of `degree` numbers are at most this: nearly always k or more.
uint64_t bound_of(int64_t picks, int64_t degree) {
  const int64_t likely = likely_of(picks);
  if (degree <= likely) return UINT64_MAX;
  return UINT64_MAX / static_cast<uint64_t>(degree) * static_cast<uint64_t>(likely);
}

// The same of numbers that least degrees multiply: a number of at most b is one in m / b of those with least degree m.
uint64_t bound_of(int64_t picks, const LeastDegrees& degrees) {
  return UINT64_MAX / degrees.inverse_sum * static_cast<uint64_t>(likely_of(picks));
}

}  // namespace

void LayerDraw::draw(const List& list, const NodeNumbers& numbers, int hop, int64_t* drawn, float* shares) {
  if (list.picks == 0) return;
  const int64_t wanted = list.picks + (list.least ? 1 : 0);  // of which the last one is not drawn
  list.lists.with_indices([&](const auto* indices) {
    const auto* neighbours = indices + list.begin;
    most_ = list.least ? bound_of(wanted, list.of_candidates)
                       : bound_of(wanted, list.end - list.begin - list.excluded.count);
    keep(neighbours, list, numbers, hop);
    if (std::cmp_greater_equal(num_kept_, wanted)) return;
    most_ = UINT64_MAX;
    keep(neighbours, list, numbers, hop);
  });
  Most most = most_drawn(wanted);
  if (list.least) most = without_last(most);
  put_smallest(list, most, drawn);
  if (list.least) put_shares(list, most.number, drawn, shares);
}

template <typename Index>
void LayerDraw::keep(const Index* neighbours, const List& list, const NodeNumbers& numbers, int hop) {
  num_kept_ = 0;
  in_a_row_ = 0;
  const auto degree = static_cast<std::size_t>(list.end - list.begin);
  for (std::size_t first = 0; first < degree; first += kAtOnce) {
    const std::size_t count = std::min(kAtOnce, degree - first);
    number(neighbours + first, count, list, numbers, hop);
    if (kept_.size() < num_kept_ + count) {
      kept_.resize(2 * (num_kept_ + count));
      position_.resize(kept_.size());
    }
    uint64_t* const kept = kept_.data();  // copies: a write of a number could change what members are
    int64_t* const position = position_.data();
    const uint64_t most = most_;
    std::size_t num_kept = num_kept_;
    for (std::size_t i = 0; i < count; ++i) {
      kept[num_kept] = number_[i];
      position[num_kept] = static_cast<int64_t>(first + i);
      num_kept += number_[i] <= most ? 1 : 0;
    }
    num_kept_ = num_kept;
  }
  if (list.excluded.count > 0) leave_out(list.excluded);
}

// The numbers of `count` neighbours.
template <typename Index>
void LayerDraw::number(const Index* neighbours, std::size_t count, const List& list, const NodeNumbers& numbers,
                       int hop) {
  for (std::size_t i = 0; i < count; ++i) node_[i] = static_cast<uint64_t>(list.first_source + neighbours[i]);
  std::size_t num_again = in_a_row_ > 0 && neighbours[0] == neighbours[-1] ? 1 : 0;
  for (std::size_t i = 1; i < count; ++i) num_again += neighbours[i] == neighbours[i - 1] ? 1 : 0;
  const NodeNumbers own = numbers;
  if (num_again > 0) {
    for (std::size_t i = 0; i < count; ++i) {
      in_a_row_ = in_a_row_ > 0 && neighbours[i] == (neighbours + i)[-1] ? in_a_row_ + 1 : 1;
      which_[i] = own.which(static_cast<int64_t>(node_[i]), hop, in_a_row_ - 1);
    }
  } else {
    in_a_row_ = 1;
    if (own.dependency == 1) std::fill_n(which_.begin(), count, own.which(0, hop, 0));
    for (std::size_t i = 0; own.dependency > 1 && i < count; ++i) {
      which_[i] = own.which(static_cast<int64_t>(node_[i]), hop, 0);
    }
  }
  const std::size_t rounded = base::round_up(count, base::kRandomAtOnce);  // the last ones are of earlier neighbours
  base::random_many(numbers.key, node_.data(), which_.data(), rounded, number_.data());
  for (std::size_t i = 0; list.least && i < count; ++i) {
    number_[i] = times_least(number_[i], list.least[neighbours[i]]);
  }
}

void LayerDraw::leave_out(const ExcludedRef& excluded) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < num_kept_; ++i) {
    if (excluded.has(position_[i])) continue;
    kept_[kept] = kept_[i];
    position_[kept++] = position_[i];
  }
  num_kept_ = kept;
}

// Looks for a number that as many are at most as are drawn: between one that too few are below and one that too many
// are at most, where it would be if numbers were spread evenly, and in some steps in the middle.
LayerDraw::Most LayerDraw::most_drawn(int64_t picks) const {
  const auto end = kept_.begin() + static_cast<std::ptrdiff_t>(num_kept_);
  uint64_t low = 0, high = most_;
  int64_t below_low = 0, up_to_high = static_cast<int64_t>(num_kept_);
  for (int step = 1; up_to_high > picks && low < high; ++step) {
    const auto wanted = static_cast<double>(picks - below_low), between = static_cast<double>(up_to_high - below_low);
    const double share = step % 4 == 0 ? 0.5 : wanted / between;
    const auto above_low = static_cast<uint64_t>(share * static_cast<double>(high - low));
    const uint64_t middle = low + std::min(above_low, high - low - 1);
    const int64_t up_to_middle = std::count_if(kept_.begin(), end, [&](uint64_t each) { return each <= middle; });
    if (up_to_middle < picks) {
      low = middle + 1;
      below_low = up_to_middle;
    } else {
      high = middle;
      up_to_high = up_to_middle;
    }
  }
  return {high, up_to_high == picks ? picks : picks - below_low};
}

// The same without one of the largest, whose number it then has.
LayerDraw::Most LayerDraw::without_last(Most most) const {
  uint64_t largest = 0;
  int64_t equal = 0;
  for (std::size_t i = 0; i < num_kept_; ++i) {
    if (kept_[i] > most.number || kept_[i] < largest) continue;
    equal = kept_[i] > largest ? 1 : equal + 1;
    largest = kept_[i];
  }
  return {largest, std::min(most.equal, equal) - 1};
}

// Of equal numbers, those that come first in the list.
void LayerDraw::put_smallest(const List& list, Most most_drawn, int64_t* drawn) const {
  auto [most, equal] = most_drawn;
  const int64_t* const end = drawn + list.picks;
  for (std::size_t i = 0; drawn < end; ++i) {
    *drawn = list.begin + position_[i];
    drawn += kept_[i] < most || (kept_[i] == most && equal-- > 0) ? 1 : 0;
  }
}

void LayerDraw::put_shares(const List& list, uint64_t next, const int64_t* drawn, float* shares) const {
  const auto inverse = [&](int64_t i) { return inverse_chance(next, list.least[list.lists.index(drawn[i])]); };
  uint64_t sum = 0;
  for (int64_t i = 0; i < list.picks; ++i) sum += inverse(i);
  for (int64_t i = 0; i < list.picks; ++i) {
    shares[i] = static_cast<float>(static_cast<double>(inverse(i)) / static_cast<double>(sum));
  }
}

}  // namespace cohort::sampler
