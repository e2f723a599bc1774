#include "dataset/reverses.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/random.h"

namespace cohort::dataset {
namespace {

using Digest = std::array<uint64_t, 2>;

// The sum of the hashes of all edges, or of their reverses.
Digest digest_of(const base::CscRef& lists, bool reversed) {
  constexpr base::PhiloxKey kKey = base::key_of(0x72657665727365);
  uint64_t low = 0, high = 0;
#pragma omp parallel for schedule(dynamic, 4096) reduction(+ : low, high)
  for (int64_t target = 0; target < lists.num_nodes; ++target) {
    for (int64_t edge = lists.indptr[target]; edge < lists.indptr[target + 1]; ++edge) {
      const auto from = static_cast<uint64_t>(reversed ? target : lists.index(edge));
      const auto to = static_cast<uint64_t>(reversed ? lists.index(edge) : target);
      const base::PhiloxCounter hash = base::philox({{static_cast<uint32_t>(from), static_cast<uint32_t>(from >> 32),
                                                      static_cast<uint32_t>(to), static_cast<uint32_t>(to >> 32)}},
                                                    kKey);
      low += static_cast<uint64_t>(hash.word[1]) << 32 | hash.word[0];
      high += static_cast<uint64_t>(hash.word[3]) << 32 | hash.word[2];
    }
  }
  return {low, high};
}

// Compares relations; each is read at most twice.
class Comparison {
 public:
  explicit Comparison(std::span<const RelationLists> relations) : relations_(relations), digests_(relations.size()) {}

  bool are_reverses(std::size_t a, std::size_t b) {
    const RelationLists &of_a = relations_[a], &of_b = relations_[b];
    return of_a.source_type == of_b.target_type && of_a.target_type == of_b.source_type &&
           of_a.lists.num_edges == of_b.lists.num_edges && of_a.lists.num_edges > 0 &&
           digest(a, false) == digest(b, true);
  }

 private:
  const Digest& digest(std::size_t relation, bool reversed) {
    std::optional<Digest>& found = digests_[relation][reversed ? 1 : 0];
    if (!found) found = digest_of(relations_[relation].lists, reversed);
    return *found;
  }

  std::span<const RelationLists> relations_;
  std::vector<std::array<std::optional<Digest>, 2>> digests_;
};

}  // namespace

std::vector<int> find_reverses(std::span<const RelationLists> relations) {
  std::vector<int> found;
  for (const RelationLists& relation : relations) found.push_back(relation.reverse_of);
  Comparison compare(relations);
  const auto are_joined = [&](std::size_t a, std::size_t b) {
    const SameEdges reverse{static_cast<int>(b), true};
    const auto there = same_edges(relations, found, static_cast<int>(a));
    return std::ranges::find(there, reverse) != there.end();
  };
  for (const bool earlier_alone : {true, false}) {
    for (std::size_t relation = 0; relation < relations.size(); ++relation) {
      const std::size_t end = earlier_alone ? relation : relations.size();
      for (std::size_t other = 0; other < end && found[relation] == kUnknownReverse; ++other) {
        if (other == relation || found[other] == kNoReverse || are_joined(relation, other)) continue;
        if (compare.are_reverses(relation, other)) found[relation] = static_cast<int>(other);
      }
    }
  }
  for (std::size_t relation = 0; relation < relations.size(); ++relation) {
    if (found[relation] != kUnknownReverse || are_joined(relation, relation)) continue;
    if (compare.are_reverses(relation, relation)) found[relation] = static_cast<int>(relation);
  }
  return found;
}

std::vector<SameEdges> same_edges(std::span<const RelationLists> relations, std::span<const int> found, int relation) {
  const RelationLists& own = relations[static_cast<std::size_t>(relation)];
  const int names = found[static_cast<std::size_t>(relation)];
  if (names < 0 && std::ranges::find(found, relation) == found.end()) {
    if (own.source_type != own.target_type || names == kNoReverse) return {{relation, false}};
    return {{relation, false}, {relation, true}};
  }
  std::vector<SameEdges> there{{relation, false}};
  const auto add = [&](int number, bool reversed) {
    if (std::ranges::find(there, SameEdges{number, reversed}) == there.end()) there.push_back({number, reversed});
  };
  for (std::size_t i = 0; i < there.size(); ++i) {
    const SameEdges from = there[i];
    if (const int of = found[static_cast<std::size_t>(from.relation)]; of >= 0) add(of, !from.reversed);
    for (std::size_t other = 0; other < found.size(); ++other) {
      if (found[other] == from.relation) add(static_cast<int>(other), !from.reversed);
    }
  }
  return there;
}

}  // namespace cohort::dataset
