// Long work of a native module that Ctrl-C ends.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>

#include <chrono>
#include <future>
#include <stop_token>

namespace cohort::dataset {

// Runs work(stop_token) in a thread of its own while this one waits for it or for a signal (Ctrl-C), and calls
// tick(), which may use Python, about 20 times a second.
template <typename Work, typename Tick>
auto run_interruptibly(Work work, Tick tick) {
  namespace nb = nanobind;
  std::stop_source stop;
  auto result = std::async(std::launch::async, [&] { return work(stop.get_token()); });
  const auto ends_within = [&](std::chrono::milliseconds time) {
    const nb::gil_scoped_release release;
    return result.wait_for(time) == std::future_status::ready;
  };
  while (!ends_within(std::chrono::milliseconds(50))) {
    if (PyErr_CheckSignals() == 0) {
      tick();
      continue;
    }
    stop.request_stop();
    while (!ends_within(std::chrono::milliseconds(1000))) {
    }
    throw nb::python_error();
  }
  return result.get();
}

template <typename Work>
auto run_interruptibly(Work work) {
  return run_interruptibly(work, [] {});
}

}  // namespace cohort::dataset
