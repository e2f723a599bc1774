// Long work beside a look at what may end it.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>

namespace cohort::dataset {

// run_watched() of work without a result: one function for all work, as compiling std::async takes long.
template <typename Waiting>
void run_watched_work(const std::function<void(std::stop_token)>& work, const std::function<void()>& look) {
  std::stop_source stop;
  std::future<void> done = std::async(std::launch::async, [&] { work(stop.get_token()); });
  const auto ends_soon = [&] {
    [[maybe_unused]] const Waiting waiting;
    return done.wait_for(std::chrono::milliseconds(50)) == std::future_status::ready;
  };
  try {
    while (!ends_soon()) look();
  } catch (...) {
    stop.request_stop();
    while (!ends_soon()) {
    }
    throw;
  }
  done.get();
}

// Runs work(stop_token) in a thread of its own and calls look() about 20 times a second meanwhile. What look() throws
// stops the work, and is thrown once that has ended. A Waiting lives while this thread does nothing but wait.
template <typename Waiting, typename Work, typename Look>
auto run_watched(Work work, Look look) {
  using Result = std::invoke_result_t<Work&, std::stop_token>;
  if constexpr (std::is_void_v<Result>) {
    run_watched_work<Waiting>(std::ref(work), std::ref(look));
  } else {
    std::optional<Result> result;
    run_watched_work<Waiting>([&](std::stop_token token) { result.emplace(work(std::move(token))); }, std::ref(look));
    return *std::move(result);
  }
}

}  // namespace cohort::dataset
