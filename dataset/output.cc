#include "dataset/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/check.h"
#include "dataset/dataset.h"
#include "dataset/encoded.h"

namespace cohort::dataset {
namespace {

namespace fs = std::filesystem;

fs::path without_trailing_slash(const fs::path& path) {
  const fs::path normal = fs::absolute(path).lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

fs::path beside(const fs::path& out, const char* what) { return out.string() + fmt::format(".{}-{}", what, getpid()); }

void rename_or_throw(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) base::fail_errno(to.string(), "a folder that can be put in place", error.value());
}

}  // namespace

OutputFolder::OutputFolder(const fs::path& out, bool overwrite)
    : out_(without_trailing_slash(out)), temporary_(beside(out_, "tmp")), overwrite_(overwrite) {
  refuse_existing();
  std::error_code error;
  fs::create_directories(out_.parent_path(), error);
  if (!error) fs::remove_all(temporary_, error);
  if (!error) fs::create_directory(temporary_, error);
  if (error) base::fail_errno(temporary_.string(), "a folder that can be made", error.value());
}

void OutputFolder::refuse_existing() const {
  if (!fs::exists(out_)) return;
  if (!overwrite_) {
    throw base::Error({out_.string(), "a new folder", "an existing one", "choose another name or give --overwrite"});
  }
  if (!fs::exists(out_ / kMetaFile) && !is_prepared_folder(out_)) {
    throw base::Error({out_.string(), fmt::format("a data set (a folder with {}) to overwrite", kMetaFile),
                       "something else", "choose another name, or remove it yourself"});
  }
}

OutputFolder::~OutputFolder() { discard(); }

void OutputFolder::discard() {
  std::error_code error;  // a destructor cannot report; what is left carries .tmp in its name
  if (!temporary_.empty()) fs::remove_all(temporary_, error);
  temporary_.clear();
}

void OutputFolder::commit() {
  base::require(!temporary_.empty(), "a folder is committed once");
  refuse_existing();
  const fs::path old = beside(out_, "old");
  const bool replaces = fs::exists(out_);
  if (replaces) rename_or_throw(out_, old);
  rename_or_throw(temporary_, out_);
  temporary_.clear();
  std::error_code error;
  if (replaces) fs::remove_all(old, error);
  if (error) base::fail_errno(old.string(), "a replaced folder that can be removed", error.value());
}

}  // namespace cohort::dataset
