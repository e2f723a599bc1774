// Long work of a native module that Ctrl-C ends.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>

#include "dataset/watched_work.h"

namespace cohort::dataset {

// Runs work(stop_token) in a thread of its own while this one waits for it or for a signal (Ctrl-C), and calls
// tick(), which may use Python, about 20 times a second. What Python raises there ends the work.
template <typename Work, typename Tick = decltype([] {})>
auto run_interruptibly(Work work, Tick tick = {}) {
  return run_watched<nanobind::gil_scoped_release>(work, [&] {
    if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
    tick();
  });
}

}  // namespace cohort::dataset
