// What the trainer asks the sampler for: a pass over a seed set. From the list below come the struct, and what
// Python gives by name (trainer/loader/native/module.cc), values of enums by their words in names_of().
//
// The pass has the batches first_step, first_step + step_stride, ... of the set. With several ranks each asks for its
// own share; all get the same number, and those past the last of the set are empty. A pass that goes on where another
// was broken off begins with a later step: the batches before it are not built.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace cohort::channel {

constexpr int kMaxHops = 16;
constexpr int kMaxRelations = 128;  // types of edges

// Pairs that are drawn besides those of the seed set: none; as many pairs of any nodes as there are, times
// Request::negatives; so many targets for the source of each pair; so many for each that other pairs of the batch have.
enum class NegativeMode : uint32_t { kNone = 0, kBinary, kTriplet, kInBatch };
constexpr auto names_of(NegativeMode) {
  return std::to_array<std::string_view>({"none", "binary", "triplet", "in_batch"});
}

// Edges that a batch of pairs does not draw: none; those that are its pairs; these and their reverse edges.
enum class Exclude : uint32_t { kNone = 0, kSelf, kReverse };
constexpr auto names_of(Exclude) { return std::to_array<std::string_view>({"none", "self", "reverse"}); }

// Which edges of a list are drawn (sampler/draw.h): any, each at most once; any, with replacement; of those up to the
// time of a tree's seed the latest.
enum class Draw : uint32_t { kUniform = 0, kReplaced, kLast };
constexpr auto names_of(Draw) { return std::to_array<std::string_view>({"uniform", "replaced", "last"}); }

// The files of seed set N are seeds-N.npy, int64 [n], or pairs-N.npy, int64 [n, 2], in the channel's folder;
// seeds-N-times.npy, int64 [n], where seeds have times; weights-N-source.npy, -target.npy: NodeWeights
// (sampler/schedule.h). The trainer may remove them when all passes over the set are cancelled or over.
//
//   X(type, name, "what it is")
// clang-format off
#define COHORT_REQUEST_FIELDS(X) \
  X(uint64_t, epoch, "keys shuffle and draws") \
  X(uint64_t, first_step, "the trainer's rank, plus step_stride for each of its batches that are done already") \
  X(uint64_t, step_stride, "how many ranks there are") \
  X(uint32_t, seed_set, "the set's number") \
  X(bool, shuffle, "False: the set's own order") \
  X(uint32_t, batch_size, "seeds, or pairs of them") \
  X(int32_t, sampler_sms, "GPU: the first so many SMs are the sampler's, the others the trainer's; 0: all are shared") \
  X(bool, labels_of_seeds, "labels of other nodes are not wanted") \
  X(bool, last_hop_global, "where rows are in place, sources of the last hop need no batch-local ids") \
  X(bool, plane_a, "rows of codec planes come as plane A alone tells them (ibp/FORMAT.md 4.5)") \
  X(Draw, draw, "which edges are drawn: uniform, replaced or last") \
  X(bool, disjoint, "each seed, or end of a pair, is the root of a tree with nodes of its own (sampler/trees.h)") \
  X(NegativeMode, negative_mode, "pairs: what is drawn besides: none, binary, triplet or in_batch") \
  X(double, negatives, "pairs: how many are drawn for each") \
  X(uint32_t, redraws, "pairs: of a negative that is an edge of the graph, at most so many") \
  X(Exclude, exclude, "pairs: edges that are not drawn: none, self or reverse") \
  X(uint32_t, relation, "pairs: whose edges they are") \
  X(bool, unrelated, "pairs: of no relation, but from nodes of source_type to nodes of target_type") \
  X(uint32_t, source_type, "unrelated pairs: of their sources") \
  X(uint32_t, target_type, "unrelated pairs: of their targets")
// clang-format on

struct Request {
  uint64_t pass;  // numbered from 1, increasing
  int32_t num_hops;
  // [num_relations, num_hops], entry 0 of each relation next to the seeds; -1: all in-neighbours.
  int32_t fanout[kMaxRelations * kMaxHops];
  // [num_relations], of seeds with times: edges are at most so much older than their seed; -1: of any age, as without
  // windows.
  int64_t time_window[kMaxRelations];
  bool has_windows;
#define COHORT_FIELD(type, name, about) type name;
  COHORT_REQUEST_FIELDS(COHORT_FIELD)
#undef COHORT_FIELD
};

}  // namespace cohort::channel
