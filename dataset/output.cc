#include "dataset/output.h"

#include "base/check.h"
#include "base/format.h"
#include "dataset/dataset.h"
#include "dataset/encoded.h"
#include "dataset/parallel.h"

namespace cohort::dataset {
namespace {

namespace fs = std::filesystem;

fs::path without_trailing_slash(const fs::path& path) {
  const fs::path normal = fs::absolute(path).lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

// Whether there is something to replace; throws where it must not be.
bool replaces(const fs::path& out, bool overwrite) {
  if (!fs::exists(out)) return false;
  if (!overwrite) {
    throw base::Error({out.string(), "a new folder", "an existing one", "choose another name or pass --overwrite"});
  }
  if (!fs::exists(out / kMetaFile) && !is_prepared_folder(out)) {
    throw base::Error({out.string(), base::format("a data set (a folder with {}) to overwrite", kMetaFile),
                       "something else", "choose another name, or remove it yourself"});
  }
  return true;
}

// Nothing is made beside what must not be replaced.
fs::path demand_free(const fs::path& out, bool overwrite) {
  replaces(out, overwrite);
  return out;
}

}  // namespace

OutputFolder::OutputFolder(const fs::path& out, bool overwrite)
    : overwrite_(overwrite), folder_(demand_free(without_trailing_slash(out), overwrite)) {}

void OutputFolder::commit(const std::stop_token& stop) {
  if (!folder_.commit(replaces(out(), overwrite_), stop)) throw Interrupted();
}

}  // namespace cohort::dataset
