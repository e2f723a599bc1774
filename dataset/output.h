// The folder of a data set, or of prepared rows, that appears whole or not at all.
#pragma once

#include <filesystem>
#include <stop_token>

#include "base/whole_file.h"

namespace cohort::dataset {

// A folder beside OUT that takes its place on commit; without a commit it is removed.
class OutputFolder {
 public:
  // Throws base::Error when OUT exists and `overwrite` is false, or when what exists is neither a data set nor
  // prepared rows, or has runs in it. With `keeps_others` the caller brings along what others have put there.
  OutputFolder(const std::filesystem::path& out, bool overwrite, bool keeps_others = false);

  const std::filesystem::path& path() const noexcept { return folder_.path(); }  // where to write
  const std::filesystem::path& out() const noexcept { return folder_.out(); }
  void commit(const std::stop_token& stop = {});
  void discard() { folder_.discard(); }

 private:
  bool overwrite_, keeps_others_;
  base::WholeFolder folder_;
};

}  // namespace cohort::dataset
