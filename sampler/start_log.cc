#include "sampler/start_log.h"

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/process.h"

namespace cohort::sampler {

void StartLog::begin(const char* part, int64_t bytes) const {
  if (file_.empty()) return;
  const double at = static_cast<double>(base::monotonic_us()) / 1e6;
  std::ofstream file(file_, std::ios::app);
  file << nlohmann::json{{"part", part}, {"bytes", bytes}, {"at", at}}.dump() + "\n";
  file.close();
  if (!file) base::fail_errno(file_.string(), "a file that can be written", errno);
}

}  // namespace cohort::sampler
