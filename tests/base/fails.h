// What calls say that must fail.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "base/check.h"

namespace cohort::base {

// The text of the error that `call` ends in; "no error" where it ends well.
template <typename Thrown = Error, typename Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Thrown& error) {
    return error.what();
  }
  return "no error";
}

// Whether `call` ends in an error that says all of `words`.
template <typename Thrown = Error, typename Call>
testing::AssertionResult fails_with(const Call& call, std::initializer_list<std::string_view> words) {
  const std::string text = error_of<Thrown>(call);
  for (const std::string_view each : words) {
    if (text.find(each) == std::string::npos) return testing::AssertionFailure() << "no '" << each << "' in: " << text;
  }
  return testing::AssertionSuccess();
}

}  // namespace cohort::base
