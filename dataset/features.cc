#include "dataset/features.h"

#include <algorithm>
#include <cmath>

#include "dataset/edges.h"
#include "dataset/parallel.h"

namespace cohort::dataset {
namespace {

// How far centres lie from the origin, in standard deviations of the noise. With communities, features alone should
// not be enough; where edges tell nothing, they must be.
constexpr float kDistanceSbm = 2.0f, kDistanceOther = 4.0f;

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

// Fills the rows, each element through `convert`.
template <typename Element, typename Convert>
void fill(const GenerateOptions& options, std::span<const int64_t> labels, std::span<Element> features,
          const std::stop_token& stop, Convert convert) {
  const NormalTable table;
  const std::vector<float> centres = class_centres(options, table);
  const base::PhiloxKey key = stream_key(options.seed, Stream::noise);
  const int64_t dim = options.feature_dim, rows_at_once = std::max<int64_t>(1, kChunk / dim);
  for_chunks(
      options.num_nodes, stop,
      [&](int64_t begin, int64_t end) {
        for (int64_t v = begin; v < end; ++v) {
          const float* const centre = centres.data() + labels[static_cast<std::size_t>(v)] * dim;
          Element* const row = features.data() + v * dim;
          for_normals(table, key, v, dim, [&](int64_t j, float noise) { row[j] = convert(centre[j] + noise); });
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

void generate_features(const GenerateOptions& options, std::span<const int64_t> labels, MappedOutput& features,
                       const std::stop_token& stop) {
  switch (options.feature_dtype) {
    case DType::uint8:
      return fill(options, labels, features.as<uint8_t>(), stop, uint8_of);
    case DType::float16:
      return fill(options, labels, features.as<uint16_t>(), stop, float16_bits);
    case DType::bfloat16:
      return fill(options, labels, features.as<uint16_t>(), stop, bfloat16_bits);
    default:
      return fill(options, labels, features.as<float>(), stop, [](float x) { return x; });
  }
}

}  // namespace cohort::dataset
