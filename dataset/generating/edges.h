// Where the random edges come from: edge i of a seed, whoever asks and whenever.
#pragma once

#include <span>
#include <stop_token>

#include "base/random.h"
#include "dataset/csc.h"
#include "dataset/generating/generate.h"

namespace cohort::dataset {

// Independent streams of random numbers of one seed.
enum class Stream : uint64_t { edges = 1, names, classes, centres, noise, splits, weights, edge_noise };

base::PhiloxKey stream_key(uint64_t seed, Stream stream);

// The class whose block of positions holds `position`; blocks are equal up to one node.
int64_t block_of(int64_t position, int64_t num_nodes, int64_t num_classes);

// The first position of a class's block; of num_classes: num_nodes.
int64_t block_start(int64_t block, int64_t num_nodes, int64_t num_classes);

// The weight of an edge between two nodes, either way: uniform in (0, 1], a multiple of 2^-24.
float edge_weight(base::PhiloxKey key, int64_t one, int64_t other);

// Fills indptr int64 [V + 1] and indices Index [E]; names Index [V] renames positions to nodes.
template <typename Index>
void generate_csc(const GenerateOptions& options, std::span<const Index> names, std::span<int64_t> indptr,
                  std::span<Index> indices, const std::stop_token& stop);

}  // namespace cohort::dataset
