// A folder that appears whole or not at all.
#pragma once

#include <filesystem>

namespace cohort::dataset {

// Files are written into OUT.tmp-<pid>, which takes the place of OUT on commit; without a commit it is removed.
class OutputFolder {
 public:
  // Throws base::Error when OUT exists and `overwrite` is false, or when what exists is neither a data set nor
  // prepared rows.
  OutputFolder(const std::filesystem::path& out, bool overwrite);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  const std::filesystem::path& path() const noexcept { return temporary_; }  // where to write
  const std::filesystem::path& out() const noexcept { return out_; }
  void commit();
  void discard();

 private:
  void refuse_existing() const;

  std::filesystem::path out_;
  std::filesystem::path temporary_;  // empty after commit or discard
  bool overwrite_;
};

}  // namespace cohort::dataset
