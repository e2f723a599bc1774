#include "sampler/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/check.h"
#include "channel/layout.h"
#include "sampler/presample.h"

namespace cohort::sampler {
namespace {

using nlohmann::json;

json parse(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw base::Error({path.string(), "a readable file", "none", ""});
  try {
    return json::parse(file);
  } catch (const json::exception& error) {
    throw base::Error({path.string(), "JSON", error.what(), ""});
  }
}

// Reads members of one JSON object and remembers which were asked for.
class Members {
 public:
  Members(const json& object, std::string place) : object_(object), place_(std::move(place)) {
    if (!object.is_object()) throw base::Error({place_, "an object", object.type_name(), ""});
  }

  template <typename T>
  void read(const char* name, T& value, bool required = false) {
    known_.insert(name);
    const auto member = object_.find(name);
    if (member == object_.end()) {
      if (required) throw base::Error({place_, fmt::format("a member \"{}\"", name), "none", ""});
      return;
    }
    try {
      value = member->get<T>();
    } catch (const json::exception&) {
      throw base::Error({fmt::format("{}.{}", place_, name), "a value of its type", member->dump(), ""});
    }
  }

  void read_path(const char* name, std::filesystem::path& path) {
    std::string text;
    read(name, text, true);
    path = text;
  }

  // Throws when the object has members nobody asked for: a misspelt option must not be ignored.
  void refuse_others() const {
    for (const auto& [name, value] : object_.items()) {
      if (!known_.contains(name)) throw base::Error({place_, "only known members", fmt::format("\"{}\"", name), ""});
    }
  }

 private:
  const json& object_;
  std::string place_;
  std::set<std::string> known_;
};

void refuse_unless(bool good, const char* place, const std::string& expected, const std::string& found) {
  if (!good) throw base::Error({place, expected, found, ""});
}

}  // namespace

std::filesystem::path rank_folder(const Options& options, int rank) {
  return rank == 0 ? options.channel : options.channel / fmt::format("rank-{}", rank);
}

Options read_options(const std::filesystem::path& run_json) {
  const json run = parse(run_json);
  if (!run.is_object() || !run.contains("sampler")) {
    throw base::Error({run_json.string(), "a member \"sampler\"", "none", ""});
  }
  Members members(run["sampler"], run_json.string() + ": sampler");
  Options options;
  members.read_path("dataset", options.dataset);
  members.read_path("channel", options.channel);
  members.read("device", options.device);
  members.read("num_ranks", options.num_ranks);
  members.read("gpus", options.gpus);
  members.read("topology", options.topology);
  members.read("compress", options.compress);
  members.read("num_slots", options.num_slots);
  members.read("fetch_blocks", options.fetch_blocks);
  members.read("seed", options.seed);
  members.read("owner_pid", options.owner_pid);
  members.read("end_with_parent", options.end_with_parent);
  members.read("poison_slots", options.poison_slots);
  members.read("slow_fetch_us", options.faults.slow_fetch_us);
  members.read("illegal_access_batch", options.faults.illegal_access_batch);
  members.refuse_others();
  refuse_unless(options.device == "cpu" || options.device == "cuda", "device", "cpu or cuda", options.device);
  refuse_unless(options.num_ranks >= 1, "num_ranks", "at least 1", std::to_string(options.num_ranks));
  refuse_unless(options.device == "cpu" || std::ssize(options.gpus) == options.num_ranks, "gpus",
                fmt::format("one for each of {} ranks", options.num_ranks), std::to_string(options.gpus.size()));
  refuse_unless(options.topology == "auto" || options.topology == "gpu" || options.topology == "host", "topology",
                "auto, gpu or host", options.topology);
  const std::set<std::string> modes = {"auto", "none", "cache", "host", "both"};
  refuse_unless(modes.contains(options.compress), "compress", "auto, none, cache, host or both", options.compress);
  refuse_unless(options.fetch_blocks >= 1, "fetch_blocks", "at least 1", std::to_string(options.fetch_blocks));
  refuse_unless(std::filesystem::is_directory(options.channel), "channel", "an existing folder",
                options.channel.string());
  return options;
}

PresampleOptions read_presample_options(const std::filesystem::path& path) {
  const json file = parse(path);
  Members members(file, path.string());
  PresampleOptions options;
  members.read_path("dataset", options.dataset);
  members.read("fanout", options.fanout, true);
  members.read("batch_size", options.batch_size);
  members.read("split", options.split);
  members.read("max_batches", options.max_batches);
  members.read("refresh", options.refresh);
  members.refuse_others();
  const auto hops = static_cast<int64_t>(options.fanout.size());
  refuse_unless(hops >= 1 && hops <= channel::kMaxHops, "fanout",
                fmt::format("1 to {} hops", channel::kMaxHops).c_str(), std::to_string(hops));
  refuse_unless(std::ranges::all_of(options.fanout, [](int32_t k) { return k >= -1; }), "fanout",
                "numbers of at least 0, or -1 for all", "another");
  refuse_unless(options.batch_size >= 1, "batch_size", "at least 1", "0");
  refuse_unless(options.max_batches >= 1, "max_batches", "at least 1", std::to_string(options.max_batches));
  return options;
}

}  // namespace cohort::sampler
