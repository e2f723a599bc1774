// The folder of a run in shared memory; channel/run_folder.py makes it.
#pragma once

#include <filesystem>

namespace cohort::channel {

// Removes the folder and all in it where it is a run's without doubt: run-* in this user's folder cohort-UID, a folder
// of this user alone (drwx------), no link, with the file `lock`. Any other stays as it is. What another process
// removes at the same time is no error.
void remove_run_folder(const std::filesystem::path& folder);

}  // namespace cohort::channel
