// A test of the data set in a folder, whose files it damages.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <span>
#include <string>

#include "dataset/check.h"
#include "dataset/dataset.h"
#include "dataset/npy_header.h"
#include "tests/base/fails.h"
#include "tests/dataset/temporary_folder.h"

namespace cohort::dataset {

class FolderTest : public testing::Test {
 protected:
  std::filesystem::path path(const std::string& file) const { return data_ / file; }

  // Puts `value` at element `index` of an array of the folder.
  template <typename T>
  void poke(const std::string& file, int64_t index, T value) {
    std::string bytes = read_bytes(path(file));
    const auto header = parse_npy_header(std::as_bytes(std::span(bytes)), file);
    std::memcpy(bytes.data() + header.header_bytes + static_cast<std::size_t>(index) * sizeof(T), &value, sizeof(T));
    write_bytes(path(file), bytes);
  }

  // Puts a text in the place of another that meta.json has.
  void edit_meta(const std::string& from, const std::string& to) {
    std::string text = read_bytes(path(kMetaFile));
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write_bytes(path(kMetaFile), text.replace(at, from.size(), to));
  }

  // Asserts that opening fails, and that the check reports the same words.
  void expect_refused(const std::string& words) {
    const std::string message = base::error_of([&] { Dataset::open(data_); });
    EXPECT_NE(message.find(words), std::string::npos) << message;
    const auto problems = check(data_);
    ASSERT_FALSE(problems.empty()) << words;
    EXPECT_EQ(base::Error(problems.front()).what(), message);
  }

  TemporaryFolder temporary_;
  std::filesystem::path data_ = temporary_ / "graph";
};

}  // namespace cohort::dataset
