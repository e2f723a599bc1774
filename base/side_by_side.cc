#include "base/side_by_side.h"

#include <omp.h>

#include <algorithm>
#include <future>
#include <vector>

namespace cohort::base {

void side_by_side(std::size_t n, const std::function<void(std::size_t)>& work) {
  if (n == 1) return work(0);
  const int threads_of_each = std::max(1, omp_get_max_threads() / static_cast<int>(std::max<std::size_t>(n, 1)));
  std::vector<std::future<void>> running;
  for (std::size_t i = 0; i < n; ++i) {
    running.push_back(std::async(std::launch::async, [&, i] {
      omp_set_num_threads(threads_of_each);
      work(i);
    }));
  }
  for (const auto& one : running) one.wait();
  for (auto& one : running) one.get();
}

}  // namespace cohort::base
