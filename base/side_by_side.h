// The same work for several things, for each in a thread of its own.
#pragma once

#include <cstddef>
#include <functional>

namespace cohort::base {

// Calls work(0) to work(n - 1) at once and waits for all; OpenMP's threads are divided among them. Throws what the
// first of those that failed threw. With n = 1 the caller's thread does the work.
void side_by_side(std::size_t n, const std::function<void(std::size_t)>& work);

}  // namespace cohort::base
