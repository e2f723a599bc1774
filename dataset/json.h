// Reading the JSON files of a data set: every error names the file, what was expected and what was found.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>

#include "base/check.h"
#include "base/format.h"

namespace cohort::dataset {

inline constexpr int kMaxJsonDepth = 32;  // printing a value goes down as deep on the stack

// What of a value a message shows.
inline std::string shown(const nlohmann::json& value) {
  constexpr std::size_t kShown = 80;
  std::string text = value.dump();
  if (text.size() > kShown) text.replace(kShown, std::string::npos, "...");
  return text;
}

// The document in a file. Throws base::Error when there is none, with `what` it would be and how to get it.
inline nlohmann::json parse_json(const std::filesystem::path& path, const char* what, const char* hint) {
  std::ifstream file(path);
  if (!file) throw base::Error({path.string(), what, "no such file", hint});
  if (std::filesystem::is_directory(path)) throw base::Error({path.string(), what, "a folder", hint});
  const auto demand_depth = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    if (depth <= kMaxJsonDepth) return true;
    throw base::Error({path.string(), base::format("JSON of at most {} levels", kMaxJsonDepth), "more", hint});
  };
  try {
    return nlohmann::json::parse(file, demand_depth);
  } catch (const nlohmann::json::exception& error) {
    throw base::Error({path.string(), "JSON", error.what(), hint});
  }
}

// A member of the given JSON type (a string or an integer), or an error that names it.
template <typename T>
T member(const nlohmann::json& json, const std::string& place, const char* key, const char* expected,
         const char* hint) {
  const auto found = json.is_object() ? json.find(key) : json.end();
  if (!json.is_object() || found == json.end()) {
    throw base::Error({place, base::format("the key \"{}\"", key), "none", hint});
  }
  const bool fits = std::is_same_v<T, std::string> ? found->is_string() : found->is_number_integer();
  if (!fits) throw base::Error({place, base::format("\"{}\": {}", key, expected), shown(*found), hint});
  return found->get<T>();
}

// Throws unless the document says that it is this version of this format.
inline void demand_format(const nlohmann::json& json, const std::string& place, const char* name, int64_t number,
                          const char* hint) {
  const auto format = member<std::string>(json, place, "format", "a string", hint);
  const auto version = member<int64_t>(json, place, "version", "an integer", hint);
  if (format == name && version == number) return;
  throw base::Error({place, base::format("format {} version {}", name, number),
                     base::format("format {} version {}", format, version), hint});
}

}  // namespace cohort::dataset
