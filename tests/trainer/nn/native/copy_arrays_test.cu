// Arrays copied at once: the CUDA body against that of the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/base/on_gpu.h"
#include "trainer/nn/native/copy_arrays.h"

namespace cohort::trainer {
namespace {

TEST(GpuCopyArrays, CopiesWhatTheHostCopies) {
  constexpr int64_t kRoom = 400'000;  // more than one launch has threads for
  std::vector<int64_t> values(kRoom);
  std::iota(values.begin(), values.end(), 1);
  const auto from = base::upload(values);
  ArrayCopies on_host, on_gpu;
  std::vector<std::vector<int64_t>> wanted;
  std::vector<base::DeviceArray<int64_t>> found;
  const std::vector<int64_t> counts = {0, 1, 31, 257, 1000, 131'072, 262'145, kRoom};
  for (int round = 0; round < 3; ++round) {  // 24: more than one launch takes
    for (const int64_t count : counts) {
      const int64_t room = std::min(kRoom, count + 777 * round);
      wanted.emplace_back(room + 1, -7);  // an element behind, which nobody may touch
      found.push_back(base::upload(wanted.back()));
      const ArrayCopy copy{nullptr, nullptr, count, room, round - 1};
      on_host.push_back(copy), on_gpu.push_back(copy);
    }
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    on_host[i].from = values.data() + i, on_host[i].to = wanted[i].data();
    on_gpu[i].from = from.data() + i, on_gpu[i].to = found[i].data();
    on_host[i].count = on_gpu[i].count = std::min<int64_t>(on_host[i].count, kRoom - static_cast<int64_t>(i));
  }
  run_on_host(on_host);
  const base::Stream stream;
  run_on_gpu(on_gpu, stream);
  stream.synchronize();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_EQ(base::download(found[i]), wanted[i]) << "array " << i;
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
