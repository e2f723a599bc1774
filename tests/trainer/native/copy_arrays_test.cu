// Arrays copied at once against each by itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/owners.h"
#include "trainer/native/copy_arrays.h"

namespace cohort::trainer {
namespace {

TEST(GpuCopyArrays, CopiesAndFills) {
  constexpr int64_t kRoom = 400'000;  // more than one launch has threads for
  std::vector<int64_t> values(kRoom);
  std::iota(values.begin(), values.end(), 1);
  const auto from = base::upload(values);
  ArrayCopies copies;
  std::vector<std::vector<int64_t>> wanted;
  std::vector<base::DeviceArray<int64_t>> found;
  const std::vector<int64_t> counts = {0, 1, 31, 257, 1000, 131'072, 262'145, kRoom};
  for (int round = 0; round < 3; ++round) {  // 24: more than one launch takes
    for (const int64_t count : counts) {
      const int64_t room = std::min(kRoom, count + 777 * round);
      wanted.emplace_back(room + 1, -7);  // an element behind, which nobody may touch
      found.push_back(base::upload(wanted.back()));
      copies.push_back({nullptr, nullptr, count, room, round - 1});
    }
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    ArrayCopy& copy = copies[i];
    copy.from = from.data() + i, copy.to = found[i].data();
    copy.count = std::min<int64_t>(copy.count, kRoom - static_cast<int64_t>(i));
    std::copy_n(values.data() + i, copy.count, wanted[i].data());
    std::fill_n(wanted[i].data() + copy.count, copy.room - copy.count, copy.fill);
  }
  const base::Stream stream;
  run_on_gpu(copies, stream);
  stream.synchronize();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    std::vector<int64_t> values_found(wanted[i].size());
    base::cuda_check(cudaMemcpy(values_found.data(), found[i].data(), values_found.size() * 8, cudaMemcpyDeviceToHost));
    ASSERT_EQ(values_found, wanted[i]) << "array " << i;
  }
}

TEST(GpuCopyArrays, NothingIsFine) {
  const base::Stream stream;
  run_on_gpu(ArrayCopies{}, stream);
  run_on_gpu(ArrayCopies{ArrayCopy{}}, stream);
  stream.synchronize();
}

}  // namespace
}  // namespace cohort::trainer
