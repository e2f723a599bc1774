// Feature rows to test with.
#pragma once

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cache/slab_rows.h"

namespace cohort::cache {

// Rows of floats around 1, some of them far from it, in a type and number of columns.
struct Table {
  Table(std::string dtype, int64_t num_rows, int64_t num_columns, int64_t element_bytes, bool sparse = false) {
    rows.shape = {num_rows, num_columns, std::move(dtype)};
    rows.row_bytes = num_columns * element_bytes;
    bytes.resize(static_cast<std::size_t>(num_rows * rows.row_bytes));
    std::mt19937_64 random(7);
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i + 4 <= bytes.size(); i += 4) {
      const float value = sparse && random() % 50 ? 0.0f : sparse ? 1.0f : normal(random);
      std::memcpy(bytes.data() + i, &value, 4);
    }
    rows.raw = bytes.data();
  }
  // As a data set's file would have them.
  void encode(const std::string& codec, const ibp::EncodeOptions& options = {}) {
    const ibp::Dtype dtype = rows.shape.dtype == "float32" ? ibp::Dtype::kFloat32 : ibp::Dtype::kBfloat16;
    const ibp::RowTable table{bytes.data(), rows.shape.num_rows, dtype, static_cast<uint32_t>(rows.shape.num_columns)};
    rows.encoded = std::make_shared<HostRows>(ibp::encode(table, ibp::fit(table, {.codec = codec}).profile, options));
  }
  std::vector<std::byte> bytes;
  FeatureRows rows;
};

}  // namespace cohort::cache
