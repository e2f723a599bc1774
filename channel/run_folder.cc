#include "channel/run_folder.h"
#include "base/format.h"

#include <sys/stat.h>
#include <unistd.h>

namespace cohort::channel {
namespace {

struct stat status_of(const std::filesystem::path& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return {};
  return status;
}

bool is_ours(const struct stat& status, mode_t kind) {
  return (status.st_mode & S_IFMT) == kind && status.st_uid == getuid();
}

bool is_folder_of_ours_alone(const std::filesystem::path& path) {
  const struct stat status = status_of(path);
  return is_ours(status, S_IFDIR) && (status.st_mode & 07777) == 0700;
}

bool is_run_folder(const std::filesystem::path& folder) {
  const std::filesystem::path root = folder.parent_path();
  return folder.filename().string().starts_with("run-") && root.filename() == base::format("cohort-{}", getuid()) &&
         is_folder_of_ours_alone(root) && is_folder_of_ours_alone(folder) &&
         is_ours(status_of(folder / "lock"), S_IFREG);
}

}  // namespace

void remove_run_folder(const std::filesystem::path& folder) {
  std::error_code gone;  // another process may be removing it at the same time: that is as good
  if (is_run_folder(folder)) std::filesystem::remove_all(folder, gone);
}

}  // namespace cohort::channel
