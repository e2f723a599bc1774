// Any bytes as a .npy file.
#include <cstring>

#include "base/check.h"
#include "dataset/npy.h"
#include "tests/fuzz/fuzz.h"

namespace cohort::fuzz {
namespace {

using dataset::DType;

// The bits of all elements, read as what they are.
template <typename T>
uint64_t sum_of(const dataset::MappedArray& array) {
  uint64_t sum = 0;
  for (const T element : array.as<T>()) {
    uint64_t bits = 0;
    std::memcpy(&bits, &element, sizeof element);
    sum += bits;
  }
  return sum;
}

uint64_t read_all(const dataset::MappedArray& array) {
  switch (array.dtype()) {
    case DType::uint8:
      return sum_of<uint8_t>(array);
    case DType::float16:
    case DType::bfloat16:
      return sum_of<uint16_t>(array);
    case DType::float32:
      return sum_of<float>(array);
    case DType::int32:
      return sum_of<int32_t>(array);
    case DType::int64:
      return sum_of<int64_t>(array);
  }
  return 0;
}

// What we write of a header that we read is read the same.
void demand_same_again(const dataset::NpyHeader& header) {
  if (header.shape.size() > 1000) return;  // too long for a header of version 1, which nobody writes
  const std::string text = dataset::format_npy_header(header.dtype, header.shape);
  const dataset::NpyHeader again = dataset::parse_npy_header(std::as_bytes(std::span(text)), "again");
  demand(again.dtype == header.dtype && again.shape == header.shape, "a header survives writing and reading");
}

}  // namespace

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  const std::vector<std::vector<int64_t>> shapes = {{}, {0}, {7}, {3, 4}, {2, 0, 5}};
  for (const DType dtype :
       {DType::uint8, DType::float16, DType::bfloat16, DType::float32, DType::int32, DType::int64}) {
    for (const auto& shape : shapes) {
      dataset::NpyHeader header{dtype, shape, 0};
      all.push_back(dataset::format_npy_header(dtype, shape) + std::string(header.data_bytes(), 'x'));
    }
  }
  const std::string dict = "{'descr': '<i8', 'fortran_order': True, 'shape': (2,), }              \n";
  const std::string version_2("\x93NUMPY\x02\0\x46\0\0\0", 12);
  all.push_back(version_2 + std::string(4, ' ') + dict.substr(0, 66) + std::string(16, 'y'));
  return all;
}

void run(std::span<const std::byte> input) {
  try {
    demand_same_again(dataset::parse_npy_header(input, "fuzz"));
  } catch (const base::Error&) {
  }
  try {
    const MemoryFile file(input);
    read_all(dataset::map_npy(file.path()));
    dataset::map_npy(file.path(), {{DType::int64, DType::float32}, {-1, 4}});
  } catch (const base::Error&) {
  }
}

}  // namespace cohort::fuzz
