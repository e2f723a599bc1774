// For nanobind modules: a std::filesystem::path is a str in Python. nanobind's own caster also takes a pathlib.Path and
// calls its __fspath__; an exception that the handler of a signal raises in there (Ctrl-C, SIGTERM) is lost, and the
// call ends with a TypeError about its arguments.
#pragma once

#include <nanobind/nanobind.h>

#include <filesystem>

namespace nanobind::detail {

template <>
struct type_caster<std::filesystem::path> {
  NB_TYPE_CASTER(std::filesystem::path, const_name("str"))

  bool from_python(handle source, uint32_t, cleanup_list*) noexcept {
    if (!PyUnicode_Check(source.ptr())) return false;
    PyObject* const bytes = PyUnicode_EncodeFSDefault(source.ptr());
    if (bytes != nullptr) value = PyBytes_AS_STRING(bytes);
    Py_XDECREF(bytes);
    if (bytes == nullptr) PyErr_Clear();  // a character that no path has
    return bytes != nullptr;
  }

  static handle from_cpp(const std::filesystem::path& path, rv_policy, cleanup_list*) noexcept {
    const std::string& text = path.native();
    return PyUnicode_DecodeFSDefaultAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
  }
};

}  // namespace nanobind::detail
