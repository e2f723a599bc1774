// What the GPU fetches and encodes, against the host.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/random.h"
#include "ibp/gpu.h"
#include "tests/base/on_gpu.h"
#include "tests/ibp/rows.h"

namespace cohort::ibp {

inline std::vector<int64_t> random_index(int64_t num_rows, int64_t count) {
  std::vector<int64_t> index(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < index.size(); ++i) {
    index[i] = static_cast<int64_t>(base::random_below(uint64_t(num_rows), base::key_of(3), i, 0));
  }
  return index;
}

inline std::vector<std::byte> fetched_by_the_host(const EncodedRows& encoded, const std::vector<int64_t>& index) {
  std::vector<std::byte> out(index.size() * encoded.ref.row_bytes);
  fetch(encoded, index, out.data());
  return out;
}

// The GPU's rows, guarded by bytes that must stay as they are, equal the host's.
inline void expect_fetch(const EncodedRows& encoded, const DeviceTable& table, Gather& gather,
                         const FetchOptions& options) {
  const std::vector<int64_t> index = random_index(encoded.ref.num_rows, encoded.ref.num_rows + 77);
  std::vector<std::byte> expected = fetched_by_the_host(options.plane_a ? plane_a_of(encoded) : encoded, index);
  if (options.bfloat16) {
    expected.resize(expected.size() / 2);
    std::vector<uint16_t> elements(expected.size() / 2);
    fetch_bfloat16(encoded, index, elements.data());
    std::memcpy(expected.data(), elements.data(), expected.size());
  }
  const std::size_t row_bytes = expected.size() / index.size();
  expected.resize(expected.size() + 64, std::byte{0xa5});
  const base::DeviceArray<int64_t> device_index = base::upload(index);
  const base::DeviceBytes out(expected.size());
  base::fill_gpu(out.data(), 0xa5, expected.size());
  const base::Stream stream;
  gather.fetch(table, device_index.data(), int64_t(index.size()), out.data(), stream, options);
  stream.synchronize();
  gather.check();
  const std::vector<std::byte> found = base::download(out);
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i], expected[i]) << "byte " << i % row_bytes << " of row "
                                     << index[std::min(i / row_bytes, index.size() - 1)];
  }
}

// The same bytes.
inline void expect_same_encoding(const EncodedRows& a, const EncodedRows& b) {
  ASSERT_EQ(a.ref.num_rows, b.ref.num_rows);
  ASSERT_EQ(a.ref.data_bytes, b.ref.data_bytes);
  ASSERT_EQ(a.ref.overflow_bytes, b.ref.overflow_bytes);
  ASSERT_EQ(a.ref.max_coded_bytes, b.ref.max_coded_bytes);
  ASSERT_EQ(std::memcmp(a.ref.data, b.ref.data, std::size_t(a.ref.data_bytes)), 0);
  if (a.ref.overflow_bytes) {
    ASSERT_EQ(std::memcmp(a.ref.overflow, b.ref.overflow, std::size_t(a.ref.overflow_bytes)), 0);
  }
  const auto rows = std::size_t(a.ref.num_rows), words = (rows + 31) / 32;
  if (a.ref.layout == Layout::kPacked) {
    ASSERT_EQ(std::memcmp(a.ref.entries, b.ref.entries, rows * 8), 0);
  } else {
    ASSERT_EQ(std::memcmp(a.ref.flags, b.ref.flags, words * 4), 0);
    ASSERT_EQ(std::memcmp(a.ref.ranks, b.ref.ranks, words * 4), 0);
  }
}

}  // namespace cohort::ibp
