// What the sampler does before its first batch, for those who wait for it.
#pragma once

#include <cstdint>
#include <filesystem>

namespace cohort::sampler {

// A line of JSON a part, appended to start.jsonl: {"part": name, "bytes": that it goes through, 0 where they are not
// counted, "at": monotonic seconds at which it begins}. The next line ends it; the last one's part is "".
class StartLog {
 public:
  StartLog() = default;  // tells nobody
  // `folder`: of the channel.
  explicit StartLog(const std::filesystem::path& folder) : file_(folder / "start.jsonl") {}

  // Throws base::Error when the line cannot be written.
  void begin(const char* part, int64_t bytes = 0) const;
  void end() const { begin(""); }

 private:
  std::filesystem::path file_;
};

}  // namespace cohort::sampler
