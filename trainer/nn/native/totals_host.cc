#include "trainer/nn/native/host_rows.h"
#include "trainer/nn/native/totals.h"

namespace cohort::trainer {

void run_on_host(const TotalsCall& call) {
  with_type(call.dtype, [&]<typename T>(std::type_identity<T>) {
    const T* bias = static_cast<const T*>(call.bias);
    T* out = static_cast<T*>(call.out);
#pragma omp parallel for schedule(static) if (call.size > kFewElements)
    for (int64_t i = 0; i < call.size; ++i) {
      Sum<T> sum = widen(static_cast<const T*>(call.parts[0])[i]);
      for (std::size_t p = 1; p < static_cast<std::size_t>(call.num_parts); ++p) {
        sum += widen(static_cast<const T*>(call.parts[p])[i]);
      }
      if (bias) sum += widen(bias[i % call.columns]);
      out[i] = narrow<T>(sum);
    }
  });
}

}  // namespace cohort::trainer
