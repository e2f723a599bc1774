// The header of a NumPy .npy file, read strictly: only what a data set may hold gets through.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dataset/dtype.h"

namespace cohort::dataset {

struct NpyHeader {
  DType dtype = DType::uint8;
  std::vector<int64_t> shape;
  std::size_t header_bytes = 0;  // where the data start

  int64_t num_elements() const;
  std::size_t data_bytes() const;
};

// Parses the start of a file, format versions 1, 2 and 3. Throws base::Error naming `place` for anything but a
// little-endian array in C order with one of our element types, whose data lie on a multiple of their size.
NpyHeader parse_npy_header(std::span<const std::byte> file, const std::string& place);

// The header NumPy itself would write (version 1, data aligned to 64 bytes).
std::string format_npy_header(DType dtype, const std::vector<int64_t>& shape);

// "[3, 4]": for messages.
std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace cohort::dataset
