#include "trainer/nn/native/gather_rows.h"

namespace cohort::trainer {

void run_on_host(const GatherRowsCall& call) {
  with_type(call.dtype, [&]<typename T>(std::type_identity<T>) {
    with_type(call.out_dtype, [&]<typename Out>(std::type_identity<Out>) {
#pragma omp parallel for schedule(static)
      for (int64_t row = 0; row < call.num_rows; ++row) {
        const int64_t from = call.row_index[row];
        const T* x = static_cast<const T*>(call.x) + from * call.x_stride;
        Out* out = static_cast<Out*>(call.out) + row * call.dim;
        for (int64_t column = 0; column < call.dim; ++column) {
          out[column] = narrow<Out>(from < 0 ? Sum<Out>{0} : static_cast<Sum<Out>>(widen(x[column])));
        }
      }
    });
  });
}

}  // namespace cohort::trainer
