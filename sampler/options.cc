#include "sampler/options.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "cache/plan/plan.h"
#include "cache/remote/protocol.h"
#include "channel/layout.h"
#include "dataset/json.h"
#include "sampler/presample.h"

namespace cohort::sampler {
namespace {

using nlohmann::json;

json parse(const std::filesystem::path& path) {
  return dataset::parse_json(path, "a readable file", "cohort train writes such a file");
}

// True when a member holds a T, none of whose bits get lost.
template <typename T>
bool fits(const json& member) {
  if constexpr (std::is_same_v<T, bool>) {
    return member.is_boolean();
  } else if constexpr (std::is_integral_v<T>) {
    if (!member.is_number_integer()) return false;
    return member.is_number_unsigned() ? std::in_range<T>(member.get<uint64_t>())
                                       : std::in_range<T>(member.get<int64_t>());
  } else if constexpr (std::is_floating_point_v<T>) {
    return member.is_number();
  } else if constexpr (std::is_same_v<T, std::string>) {
    return member.is_string();
  } else {
    return member.is_array() && std::ranges::all_of(member, fits<typename T::value_type>);
  }
}

// What a member of this type is in JSON.
template <typename T>
std::string kind_of() {
  if constexpr (std::is_same_v<T, bool>) {
    return "true or false";
  } else if constexpr (std::is_integral_v<T>) {
    return base::format("an integer in [{}, {}]", std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
  } else if constexpr (std::is_floating_point_v<T>) {
    return "a number";
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    return "a list of texts";
  } else {
    return std::is_same_v<T, std::string> ? "a text" : "a list of numbers";
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
      if (required) throw base::Error({place_, base::format("a member \"{}\"", name), "none", ""});
      return;
    }
    if (!fits<T>(*member)) {
      throw base::Error({base::format("{}.{}", place_, name), kind_of<T>(), dataset::shown(*member),
                         "docs/architecture.md lists the members of run.json"});
    }
    value = member->get<T>();
  }

  // An object in place of a value; null: there is none.
  const json* find_object(const char* name) {
    known_.insert(name);
    const auto member = object_.find(name);
    return member == object_.end() ? nullptr : &*member;
  }

  void read_path(const char* name, std::filesystem::path& path, bool required = true) {
    std::string text;
    read(name, text, required);
    path = text;
  }

  // An array of as many numbers as `values` has.
  template <std::size_t size>
  void read_array(const char* name, std::array<double, size>& values) {
    std::vector<double> found(values.begin(), values.end());
    read(name, found);
    if (found.size() != size) {
      throw base::Error(
          {base::format("{}.{}", place_, name), base::format("{} numbers", size), std::to_string(found.size()), ""});
    }
    std::copy(found.begin(), found.end(), values.begin());
  }

  // Throws when the object has members nobody asked for: a misspelt option must not be ignored.
  void refuse_others() const {
    for (const auto& [name, value] : object_.items()) {
      if (!known_.contains(name)) throw base::Error({place_, "only known members", base::format("\"{}\"", name), ""});
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

void refuse_others_than(const std::vector<std::string>& names, const char* place, const std::string& found) {
  std::string expected;
  for (std::size_t i = 0; i < names.size(); ++i) {
    expected += (i == 0 ? "" : i + 1 < names.size() ? ", " : " or ") + names[i];
  }
  refuse_unless(std::ranges::find(names, found) != names.end(), place, expected, found);
}

void refuse_other_weights(const std::string& weight_attr) {
  if (!weight_attr.empty()) refuse_others_than({"edge_weight"}, "weight_attr", weight_attr);
}

void read_cache(Members& members, Options& options) {
  members.read("cache_bytes", options.cache_bytes);
  members.read("cache_policy", options.cache_policy);
  members.read("host_bytes", options.host_bytes);
  members.read("ahead", options.ahead);
  members.read("order", options.order);
  members.read_path("hotness", options.hotness, false);
  members.read("rank_hotness", options.rank_hotness);
  members.read("cliques", options.cliques);
  members.read_array("bytes_per_second", options.link_bytes_per_second);
  members.read_array("seconds_per_line", options.link_seconds_per_line);
  members.read_path("plan_file", options.plan_file, false);
}

void read_row_owners(const json& object, const std::string& place, RowOwners& owners) {
  Members members(object, place);
  members.read("names", owners.names, true);
  members.read("hosts", owners.hosts, true);
  members.read("ports", owners.ports, true);
  members.read("own", owners.own, true);
  members.read("listener", owners.listener, true);
  members.read("key", owners.key, true);
  members.read("seconds", owners.seconds, true);
  members.refuse_others();
  const auto count = std::ssize(owners.hosts);
  const bool good = count >= 2 && std::ssize(owners.names) == count && std::ssize(owners.ports) == count &&
                    owners.own >= 0 && owners.own < count && owners.listener >= 0 &&
                    owners.key.size() == cache::kKeyBytes && owners.seconds > 0 && owners.seconds < 1e6 &&
                    std::ranges::all_of(owners.ports, [](int port) { return port > 0 && port < 1 << 16; });
  refuse_unless(good, place.c_str(),
                "two or more machines with name, host and port; this one's number, listener and key",
                dataset::shown(object));
}

void check(const Options& options) {
  refuse_others_than({"cpu", "cuda"}, "device", options.device);
  refuse_unless(options.num_ranks >= 1 && options.num_ranks <= kMaxRanks, "num_ranks",
                base::format("1 to {}", kMaxRanks), std::to_string(options.num_ranks));
  refuse_unless(options.device == "cpu" || std::ssize(options.gpus) == options.num_ranks, "gpus",
                base::format("one for each of {} ranks", options.num_ranks), std::to_string(options.gpus.size()));
  refuse_others_than({"auto", "gpu", "host"}, "topology", options.topology);
  refuse_others_than({"auto", "none", "cache", "host", "both"}, "compress", options.compress);
  refuse_other_weights(options.weight_attr);
  refuse_unless(options.fetch_sms >= 0, "fetch_sms", "at least 1, or 0 for a default",
                std::to_string(options.fetch_sms));
  std::error_code ignored;  // a name may be too long
  refuse_unless(std::filesystem::is_directory(options.channel, ignored), "channel", "an existing folder",
                options.channel.string());
}

void check_cache(const Options& options) {
  refuse_others_than({"plan", "degree", "random", "none"}, "cache_policy", options.cache_policy);
  refuse_others_than({"address", "asis"}, "order", options.order);
  refuse_unless(options.ahead >= 1, "ahead", "at least 1", std::to_string(options.ahead));
  refuse_unless(options.pool_share > 0 && options.pool_share <= 1, "pool_share", "a number above 0, at most 1",
                std::to_string(options.pool_share));
  refuse_unless(options.host_bytes >= -1, "host_bytes", "0 bytes or more, or -1 for no limit",
                std::to_string(options.host_bytes));
  if (options.cliques != "auto") cache::cliques_named(options.cliques, options.num_ranks);
  for (std::size_t tier = 0; tier < options.link_bytes_per_second.size(); ++tier) {
    const double rate = options.link_bytes_per_second[tier], line = options.link_seconds_per_line[tier];
    refuse_unless(rate > 0, "bytes_per_second", "numbers above 0", std::to_string(rate));
    refuse_unless(line >= 0, "seconds_per_line", "numbers of at least 0", std::to_string(line));
  }
  if (options.cache_bytes.empty()) return;
  refuse_unless(std::ssize(options.cache_bytes) == options.num_ranks, "cache_bytes",
                base::format("one for each of {} ranks", options.num_ranks),
                std::to_string(options.cache_bytes.size()));
  for (int64_t bytes : options.cache_bytes) {
    refuse_unless(bytes >= 0, "cache_bytes", "0 bytes or more", std::to_string(bytes));
  }
  refuse_unless(options.rank_hotness.empty() || std::ssize(options.rank_hotness) == options.num_ranks, "rank_hotness",
                base::format("one for each of {} ranks", options.num_ranks),
                std::to_string(options.rank_hotness.size()));
  refuse_unless(options.cache_policy != "plan" || !options.hotness.empty() || !options.rank_hotness.empty(), "hotness",
                "a file of counts for cache_policy plan", "none");
}

}  // namespace

std::filesystem::path rank_folder(const Options& options, int rank) {
  return rank == 0 ? options.channel : options.channel / base::format("rank-{}", rank);
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
  members.read("fetch_sms", options.fetch_sms);
  members.read("reuse", options.reuse);
  members.read("pool_share", options.pool_share);
  members.read("in_place", options.in_place);
  members.read("seed", options.seed);
  members.read("edge_ids", options.edge_ids);
  members.read("edge_weights", options.edge_weights);
  members.read("weight_attr", options.weight_attr);
  members.read("edge_features", options.edge_features);
  members.read("edge_times", options.edge_times);
  members.read("owner_pid", options.owner_pid);
  members.read("end_with_parent", options.end_with_parent);
  members.read("poison_slots", options.poison_slots);
  members.read("slow_fetch_us", options.faults.slow_fetch_us);
  members.read("illegal_access_batch", options.faults.illegal_access_batch);
  read_cache(members, options);
  if (const json* owners = members.find_object("row_owners")) {
    read_row_owners(*owners, run_json.string() + ": sampler.row_owners", options.row_owners);
  }
  members.refuse_others();
  check(options);
  check_cache(options);
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
  members.read_path("seeds", options.seeds, false);
  members.read("max_batches", options.max_batches);
  members.read("refresh", options.refresh);
  members.read("weight_attr", options.weight_attr);
  members.refuse_others();
  refuse_unless(!options.fanout.empty() && std::ranges::all_of(options.fanout, [](int32_t k) { return k >= -1; }),
                "fanout", "numbers of at least 0, or -1 for all", options.fanout.empty() ? "none" : "another");
  refuse_other_weights(options.weight_attr);
  refuse_unless(options.batch_size >= 1, "batch_size", "at least 1", "0");
  refuse_unless(options.max_batches >= 1, "max_batches", "at least 1", std::to_string(options.max_batches));
  return options;
}

}  // namespace cohort::sampler
