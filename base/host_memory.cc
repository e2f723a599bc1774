#include "base/host_memory.h"

#include <malloc.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>

#include "base/proc_file.h"

namespace cohort::base {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// Cuts the text up to `end` off its front and returns it.
std::string_view cut(std::string_view& text, char end) {
  const std::size_t at = std::min(text.find(end), text.size());
  const std::string_view front = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return front;
}

std::optional<int64_t> number_in(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;  // "max", or no such file
  return number;
}

// The number on the line that begins with `name`.
std::optional<int64_t> named(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const std::string_view line = cut(text, '\n');
    if (line.starts_with(name)) return number_in(line.substr(name.size()));
  }
  return std::nullopt;
}

// Names of a control group's files, which differ by version.
struct Names {
  const char *limit, *usage, *inactive_files, *active_files;
};
constexpr Names kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ",
                          "total_active_file "};
constexpr Names kVersion2{"memory.max", "memory.current", "inactive_file ", "active_file "};

int64_t bytes_left(const std::filesystem::path& group, const Names& names) {
  const std::optional<int64_t> limit = number_in(read_proc(group / names.limit));
  const std::optional<int64_t> usage = number_in(read_proc(group / names.usage));
  if (!limit || !usage) return kNoLimit;
  const std::string parts = read_proc(group / "memory.stat");
  const int64_t of_files =
      named(parts, names.inactive_files).value_or(0) + named(parts, names.active_files).value_or(0);
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, *usage - of_files));
}

// Of the group, which a container may not see, and those above it up to the hierarchy's root, which it sees as its own.
int64_t least_left(const std::filesystem::path& root, std::filesystem::path group, const Names& names) {
  int64_t least = bytes_left(root, names);
  for (group = group.relative_path(); !group.empty(); group = group.parent_path()) {
    least = std::min(least, bytes_left(root / group, names));
  }
  return least;
}

bool has_memory(std::string_view controllers) {
  while (!controllers.empty()) {
    if (cut(controllers, ',') == "memory") return true;
  }
  return false;
}

}  // namespace

int64_t control_group_bytes(std::string_view groups, const std::filesystem::path& mounted) {
  int64_t least = kNoLimit;
  while (!groups.empty()) {
    std::string_view line = cut(groups, '\n');
    const std::string_view number = cut(line, ':'), controllers = cut(line, ':');
    if (has_memory(controllers)) least = std::min(least, least_left(mounted / "memory", line, kVersion1));
    if (number == "0" && controllers.empty()) {  // beside hierarchies of version 1 it is mounted as `unified`
      least = std::min({least, least_left(mounted, line, kVersion2), least_left(mounted / "unified", line, kVersion2)});
    }
  }
  return least;
}

int64_t available_host_bytes() {
  if (const char* text = std::getenv("COHORT_HOST_MEMORY_BYTES")) return std::atoll(text);
  const std::optional<int64_t> kilobytes = named(read_proc("/proc/meminfo"), "MemAvailable:");
  const int64_t of_machine = kilobytes ? 1024 * *kilobytes : kNoLimit;  // without one there is nothing to compare with
  return std::min(of_machine, control_group_bytes(read_proc("/proc/self/cgroup")));
}

void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kLargest = 1 << 30;  // arrays of a batch are smaller
  if (!std::getenv("MALLOC_TRIM_THRESHOLD_")) mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  if (!std::getenv("MALLOC_MMAP_THRESHOLD_")) mallopt(M_MMAP_THRESHOLD, kLargest);
#endif
}

}  // namespace cohort::base
