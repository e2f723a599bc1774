#include "dataset/reorder.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "dataset/npy.h"
#include "dataset/parallel.h"

namespace cohort::dataset {
namespace {

constexpr int64_t kNodesAtOnce = 4096;  // hubs make pieces unequal

// int64 [V]: the inverse of a permutation.
std::vector<int64_t> inverse_of(std::span<const int64_t> permutation, const std::stop_token& stop) {
  std::vector<int64_t> inverse(permutation.size());
  for_chunks(static_cast<int64_t>(permutation.size()), stop, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      inverse[static_cast<std::size_t>(permutation[static_cast<std::size_t>(i)])] = i;
    }
  });
  return inverse;
}

void write_indptr(std::span<const int64_t> old_indptr, std::span<const int64_t> old_of_new,
                  std::span<int64_t> new_indptr) {
  new_indptr[0] = 0;
  for (std::size_t i = 0; i < old_of_new.size(); ++i) {
    const auto old = static_cast<std::size_t>(old_of_new[i]);
    new_indptr[i + 1] = new_indptr[i] + old_indptr[old + 1] - old_indptr[old];
  }
}

// Sorts the sources of a node, and their edges' weights along with them: by source, then by the weight's bits.
template <typename Index>
void sort_edges(std::span<Index> sources, float* weights) {
  std::vector<std::pair<Index, uint32_t>> edges;
  for (std::size_t i = 0; i < sources.size(); ++i) edges.emplace_back(sources[i], std::bit_cast<uint32_t>(weights[i]));
  std::sort(edges.begin(), edges.end());
  for (std::size_t i = 0; i < sources.size(); ++i) {
    sources[i] = edges[i].first;
    weights[i] = std::bit_cast<float>(edges[i].second);
  }
}

// Writes indices Index [E], and weights float32 [E] where the data set has them.
template <typename Index>
void write_indices(const Dataset& data, std::span<const int64_t> old_of_new, std::span<const int64_t> new_of_old,
                   const int64_t* new_indptr, std::span<Index> out, float* out_weights, const std::stop_token& stop) {
  const std::span<const Index> old_indices = data.indices().as<Index>();
  const std::span<const int64_t> old_indptr = data.indptr();
  const float* const old_weights = out_weights ? data.edge_weights().as<float>().data() : nullptr;
  const auto write = [&](int64_t begin, int64_t end) {
    for (int64_t node = begin; node < end; ++node) {
      const auto old = static_cast<std::size_t>(old_of_new[static_cast<std::size_t>(node)]);
      Index* const first = out.data() + new_indptr[node];
      Index* const last = std::transform(
          old_indices.data() + old_indptr[old], old_indices.data() + old_indptr[old + 1], first,
          [&](Index source) { return static_cast<Index>(new_of_old[static_cast<std::size_t>(source)]); });
      if (!old_weights) {
        std::sort(first, last);
        continue;
      }
      float* const weights = out_weights + new_indptr[node];
      std::copy_n(old_weights + old_indptr[old], last - first, weights);
      sort_edges(std::span<Index>(first, last), weights);
    }
  };
  for_chunks(data.num_nodes(), stop, write, kNodesAtOnce);
}

void write_splits(const std::filesystem::path& folder, const Dataset& data, std::span<const int64_t> new_of_old,
                  const Files& files) {
  for (std::size_t split = 0; split < files.splits.size(); ++split) {
    const auto ids = data.split_arrays()[split].as<int64_t>();
    MappedOutput file = create_npy(folder / files.splits[split], DType::int64, {static_cast<int64_t>(ids.size())});
    const std::span<int64_t> out = file.as<int64_t>();
    std::transform(ids.begin(), ids.end(), out.begin(),
                   [&](int64_t id) { return new_of_old[static_cast<std::size_t>(id)]; });
    std::sort(out.begin(), out.end());
  }
}

}  // namespace

std::vector<int64_t> degree_order(std::span<const int64_t> indptr) {
  constexpr int64_t kHub = int64_t{1} << 20;  // degrees from here on are few: they share a bucket and are sorted
  const auto num_nodes = static_cast<int64_t>(indptr.size()) - 1;
  const auto degree = [&](int64_t node) {
    return indptr[static_cast<std::size_t>(node) + 1] - indptr[static_cast<std::size_t>(node)];
  };
  const auto bucket = [&](int64_t node) { return static_cast<std::size_t>(kHub - std::min(degree(node), kHub)); };
  std::vector<int64_t> start(static_cast<std::size_t>(kHub) + 2, 0);  // of each bucket, hubs first
  for (int64_t node = 0; node < num_nodes; ++node) ++start[bucket(node) + 1];
  for (std::size_t i = 1; i < start.size(); ++i) start[i] += start[i - 1];
  const int64_t num_hubs = start[1];
  std::vector<int64_t> order(static_cast<std::size_t>(num_nodes));
  for (int64_t node = 0; node < num_nodes; ++node) order[static_cast<std::size_t>(start[bucket(node)]++)] = node;
  std::stable_sort(order.begin(), order.begin() + num_hubs,
                   [&](int64_t a, int64_t b) { return degree(a) > degree(b); });
  return order;
}

void write_renumbered(const std::filesystem::path& folder, const Dataset& data, std::span<const int64_t> old_of_new,
                      const std::stop_token& stop) {
  const int64_t num_nodes = data.num_nodes();
  base::require(static_cast<int64_t>(old_of_new.size()) == num_nodes, "a number for each node");
  Meta meta = data.meta();
  const bool weighted = data.edge_weights().is_mapped();
  meta.files = {};
  if (weighted) meta.files.edge_weights = kEdgeWeightsFile;
  const std::vector<int64_t> new_of_old = inverse_of(old_of_new, stop);
  MappedOutput map = create_npy(folder / kOldOfNewFile, DType::int64, {num_nodes});
  std::copy(old_of_new.begin(), old_of_new.end(), map.as<int64_t>().begin());
  MappedOutput indptr = create_npy(folder / meta.files.indptr, DType::int64, {num_nodes + 1});
  write_indptr(data.indptr(), old_of_new, indptr.as<int64_t>());
  MappedOutput indices = create_npy(folder / meta.files.indices, data.indices().dtype(), {data.num_edges()});
  MappedOutput weights_file;
  if (weighted) weights_file = create_npy(folder / kEdgeWeightsFile, DType::float32, {data.num_edges()});
  float* const weights = weighted ? weights_file.as<float>().data() : nullptr;
  const int64_t* const starts = indptr.as<int64_t>().data();
  if (data.indices().dtype() == DType::int32) {
    write_indices<int32_t>(data, old_of_new, new_of_old, starts, indices.as<int32_t>(), weights, stop);
  } else {
    write_indices<int64_t>(data, old_of_new, new_of_old, starts, indices.as<int64_t>(), weights, stop);
  }
  MappedOutput labels = create_npy(folder / meta.files.labels, meta.label_dtype, label_shape(meta));
  take_rows(data.labels_array().data(), data.label_row_bytes(), old_of_new, labels.data(), stop);
  write_splits(folder, data, new_of_old, meta.files);
  write_meta(folder, meta);
}

void take_rows(const std::byte* rows, std::size_t row_bytes, std::span<const int64_t> ids, std::byte* out,
               const std::stop_token& stop) {
  for_chunks(
      static_cast<int64_t>(ids.size()), stop,
      [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const auto id = static_cast<std::size_t>(ids[static_cast<std::size_t>(i)]);
          std::memcpy(out + static_cast<std::size_t>(i) * row_bytes, rows + id * row_bytes, row_bytes);
        }
      },
      kNodesAtOnce);
}

}  // namespace cohort::dataset
