#include "dataset/generating/features.h"

#include <algorithm>
#include <cmath>

#include "dataset/generating/edges.h"
#include "dataset/parallel.h"

namespace cohort::dataset {
namespace {

// How far centres lie from the origin, in standard deviations of the noise. With communities, features alone should
// not be enough; where edges tell nothing, they must be.
constexpr float kDistanceSbm = 2.0f, kDistanceOther = 4.0f;
constexpr float kDistanceOfEdges = 2.0f;

// The x with P(normal < x) = p, by bisection.
double normal_quantile(double p) {
  double low = -10.0, high = 10.0;
  for (int i = 0; i < 64; ++i) {
    const double middle = 0.5 * (low + high);
    (0.5 * std::erfc(-middle * M_SQRT1_2) < p ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

// Calls use(j, normal) for j in [0, dim), four numbers a Philox call.
template <typename Use>
void for_normals(const NormalTable& table, base::PhiloxKey key, int64_t row, int64_t dim, Use use) {
  const auto low = static_cast<uint32_t>(row), high = static_cast<uint32_t>(row >> 32);
  for (int64_t j = 0; j < dim; j += 4) {
    const auto out = base::philox({{low, high, static_cast<uint32_t>(j), 0}}, key);
    const int64_t count = std::min<int64_t>(4, dim - j);
    for (int64_t k = 0; k < count; ++k) use(j + k, table(out.word[k]));
  }
}

// float32 [C, D]
std::vector<float> class_centres(const GenerateOptions& options, const NormalTable& table) {
  const int64_t dim = options.feature_dim;
  const float distance = options.kind == GraphKind::sbm ? kDistanceSbm : kDistanceOther;
  const float scale = distance / std::sqrt(static_cast<float>(dim));
  std::vector<float> centres(static_cast<std::size_t>(options.num_classes * dim));
  for (int64_t c = 0; c < options.num_classes; ++c) {
    float* const centre = centres.data() + c * dim;
    for_normals(table, stream_key(options.seed, Stream::centres), c, dim,
                [&](int64_t j, float normal) { centre[j] = scale * normal; });
  }
  return centres;
}

uint8_t uint8_of(float x) { return static_cast<uint8_t>(std::clamp(128.5f + 32.0f * x, 0.0f, 255.0f)); }

// Fills rows [count, D], each element through `convert`; node_at(i) is the node of row i.
template <typename Element, typename NodeAt, typename Convert>
void fill(const NormalTable& table, std::span<const float> centres, const GenerateOptions& options,
          std::span<const int64_t> labels, int64_t count, NodeAt node_at, std::byte* out, const std::stop_token& stop,
          Convert convert) {
  auto* const rows = reinterpret_cast<Element*>(out);
  const base::PhiloxKey key = stream_key(options.seed, Stream::noise);
  const int64_t dim = options.feature_dim, rows_at_once = std::max<int64_t>(1, kChunk / dim);
  for_chunks(
      count, stop,
      [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t node = node_at(i);
          const float* const centre = centres.data() + labels[static_cast<std::size_t>(node)] * dim;
          Element* const row = rows + i * dim;
          for_normals(table, key, node, dim, [&](int64_t j, float noise) { row[j] = convert(centre[j] + noise); });
        }
      },
      rows_at_once);
}

}  // namespace

NormalTable::NormalTable() : quantiles_((1u << kCellBits) + 1) {
  constexpr double kNumCells = 1u << kCellBits, kTail = 0.125 / kNumCells;
  for (std::size_t i = 0; i < quantiles_.size(); ++i) {
    const double p = static_cast<double>(i) / kNumCells;
    quantiles_[i] = static_cast<float>(normal_quantile(std::clamp(p, kTail, 1.0 - kTail)));
  }
}

EdgeFeatureGenerator::EdgeFeatureGenerator(uint64_t seed, int64_t dim)
    : noise_(stream_key(seed, Stream::edge_noise)),
      centre_(static_cast<std::size_t>(dim), kDistanceOfEdges / std::sqrt(static_cast<float>(dim))) {}

void EdgeFeatureGenerator::write(int64_t one, int64_t other, bool same_class, float* row) const {
  const auto [least, most] = std::minmax(one, other);
  const base::PhiloxKey key = base::derive_key(noise_, static_cast<uint64_t>(least), static_cast<uint64_t>(most));
  for_normals(table_, key, 0, std::ssize(centre_), [&](int64_t j, float normal) {
    const float centre = centre_[static_cast<std::size_t>(j)];
    row[j] = (same_class ? centre : -centre) + normal;
  });
}

FeatureGenerator::FeatureGenerator(const GenerateOptions& options)
    : options_(options), centres_(class_centres(options, table_)) {}

std::size_t FeatureGenerator::row_bytes() const {
  return static_cast<std::size_t>(options_.feature_dim) * size_of(options_.feature_dtype);
}

template <typename NodeAt>
void FeatureGenerator::write(std::span<const int64_t> labels, int64_t count, NodeAt node_at, std::byte* out,
                             const std::stop_token& stop) const {
  switch (options_.feature_dtype) {
    case DType::uint8:
      return fill<uint8_t>(table_, centres_, options_, labels, count, node_at, out, stop, uint8_of);
    case DType::float16:
      return fill<uint16_t>(table_, centres_, options_, labels, count, node_at, out, stop, float16_bits);
    case DType::bfloat16:
      return fill<uint16_t>(table_, centres_, options_, labels, count, node_at, out, stop, bfloat16_bits);
    default:
      return fill<float>(table_, centres_, options_, labels, count, node_at, out, stop, [](float x) { return x; });
  }
}

void FeatureGenerator::range(std::span<const int64_t> labels, int64_t first, int64_t count, std::byte* out,
                             const std::stop_token& stop) const {
  write(
      labels, count, [first](int64_t i) { return first + i; }, out, stop);
}

void FeatureGenerator::take(std::span<const int64_t> labels, std::span<const int64_t> nodes, std::byte* out,
                            const std::stop_token& stop) const {
  const auto node_at = [nodes](int64_t i) { return nodes[static_cast<std::size_t>(i)]; };
  write(labels, static_cast<int64_t>(nodes.size()), node_at, out, stop);
}

}  // namespace cohort::dataset
