// For nanobind modules: base::Error, and what the file system refuses, arrive in Python as CohortError(place, expected,
// found, hint).
#pragma once

#include <nanobind/nanobind.h>

#include <exception>
#include <filesystem>

#include "base/check.h"

namespace cohort::base {

// A part of an error as Python's str; it may quote a damaged file.
inline nanobind::object text(const std::string& part) {
  return nanobind::steal(PyUnicode_DecodeUTF8(part.c_str(), static_cast<Py_ssize_t>(part.size()), "replace"));
}

inline void raise(const Error::Parts& parts) {
  const nanobind::object type = nanobind::module_::import_("cohort_gnn.base.errors").attr("CohortError");
  PyErr_SetObject(type.ptr(), type(text(parts.place), text(parts.expected), text(parts.found), text(parts.hint)).ptr());
}

// Call once in NB_MODULE. It also turns off nanobind's report of objects that are alive when Python ends: after an
// exception in a user's script, whose traceback may keep batches, the report hides the traceback and blames the
// bindings.
inline void raise_errors_as_cohort_error() {
  nanobind::set_leak_warnings(false);
  nanobind::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const Error& error) {
      raise(error.parts());
    } catch (const std::filesystem::filesystem_error& error) {
      const bool is_denied = error.code() == std::errc::permission_denied;
      raise({error.path1().string(), "a path that can be used", error.code().message(),
             is_denied ? "check its permissions, and those of the folders above it: ls -ld" : ""});
    }
  });
}

}  // namespace cohort::base
