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

constexpr int kDepth = 2;  // of DIR/runs/NAME/run.json

// The folder of a run in a data set's folder; "": there is none.
fs::path run_in(const fs::path& out) {
  std::error_code unreadable;  // such a folder is not looked into
  for (fs::recursive_directory_iterator it(out, unreadable); it != fs::recursive_directory_iterator();
       it.increment(unreadable)) {
    if (it.depth() >= kDepth) it.disable_recursion_pending();
    if (it.depth() > 0 && it->path().filename() == "run.json") return it->path().parent_path();
  }
  return {};
}

// Whether there is something to replace; throws where it must not be.
bool replaces(const fs::path& out, bool overwrite, bool keeps_others) {
  if (!fs::exists(out)) return false;
  if (!overwrite) {
    throw base::Error({out.string(), "a new folder", "an existing one", "choose another name or pass --overwrite"});
  }
  if (!fs::exists(out / kMetaFile) && !is_prepared_folder(out)) {
    throw base::Error({out.string(), base::format("a data set (a folder with {}) to overwrite", kMetaFile),
                       "something else", "choose another name, or remove it yourself"});
  }
  if (const fs::path run = keeps_others ? fs::path() : run_in(out); !run.empty()) {
    throw base::Error({out.string(), "a data set without runs in it to overwrite", "the run " + run.string(),
                       "move it, or remove it yourself"});
  }
  return true;
}

// Nothing is made beside what must not be replaced.
fs::path demand_free(const fs::path& out, bool overwrite, bool keeps_others) {
  replaces(out, overwrite, keeps_others);
  return out;
}

}  // namespace

OutputFolder::OutputFolder(const fs::path& out, bool overwrite, bool keeps_others)
    : overwrite_(overwrite),
      keeps_others_(keeps_others),
      folder_(demand_free(without_trailing_slash(out), overwrite, keeps_others)) {}

void OutputFolder::commit(const std::stop_token& stop) {
  if (!folder_.commit(replaces(out(), overwrite_, keeps_others_), stop)) throw Interrupted();
}

}  // namespace cohort::dataset
