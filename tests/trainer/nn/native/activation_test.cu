// Activation and dropout: the CUDA body against that of the host.
#include <gtest/gtest.h>

#include "tests/base/on_gpu.h"
#include "tests/trainer/nn/native/random_block.h"
#include "trainer/nn/native/activation.h"

namespace cohort::trainer {
namespace {

class GpuActivation : public ::testing::TestWithParam<Activation> {};

TEST_P(GpuActivation, DropsWhatTheHostDrops) {
  for (const int64_t size : {1, 3, 4, 1023, 100'000}) {
    const auto x = random_elements<float>(size, 1), grad = random_elements<float>(size, 2);
    std::vector<float> y(x.size()), back(x.size());
    DropCall call{Dtype::kFloat32, GetParam(), size, 0.4, 77, nullptr, x.data(), y.data()};
    run_on_host(call);
    DropGradCall grad_call{Dtype::kFloat32, GetParam(), size, 0.4, y.data(), grad.data(), back.data()};
    run_on_host(grad_call);

    const auto gpu_x = base::upload(x), gpu_y = base::upload(y), gpu_grad = base::upload(grad);
    const base::DeviceArray<float> out(x.size()), gpu_back(x.size());
    call.x = gpu_x.data(), call.out = out.data();
    const auto key = base::upload(std::vector<uint64_t>{77});
    if (size % 2 == 0) call.key = 0, call.key_at = key.data();  // where a CUDA graph looks for it
    grad_call.y = gpu_y.data(), grad_call.grad = gpu_grad.data(), grad_call.out = gpu_back.data();
    const base::Stream stream;
    run_on_gpu(call, stream);
    run_on_gpu(grad_call, stream);
    stream.synchronize();
    const auto found = base::download(out), found_back = base::download(gpu_back);
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(found[i] == 0, y[i] == 0) << "element " << i << " of " << size;
      ASSERT_EQ(std::signbit(found[i]), std::signbit(y[i]));
      ASSERT_NEAR(found[i], y[i], 1e-6);  // expm1 is not the same on both
      ASSERT_NEAR(found_back[i], back[i], 1e-6);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GpuActivation,
                         ::testing::Values(Activation::kRelu, Activation::kElu, Activation::kLeakyRelu));

}  // namespace
}  // namespace cohort::trainer
