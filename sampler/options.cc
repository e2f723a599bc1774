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

template <typename T>
constexpr bool is_text = std::is_same_v<T, std::string> || std::is_same_v<T, std::filesystem::path>;

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
  } else if constexpr (is_text<T>) {
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
    return is_text<T> ? "a text" : "a list of numbers";
  }
}

// Reads members of one JSON object and remembers which were asked for.
class Members {
 public:
  Members(const json& object, std::string place) : object_(object), place_(std::move(place)) {
    if (!object.is_object()) throw base::Error({place_, "an object", object.type_name(), ""});
  }

  // Throws where there is no such member.
  void demand(const char* name) const {
    if (!object_.contains(name)) throw base::Error({place_, base::format("a member \"{}\"", name), "none", ""});
  }

  template <typename T>
  void read(const char* name, T& value, bool required = false) {
    known_.insert(name);
    const auto member = object_.find(name);
    if (member == object_.end()) {
      if (required) demand(name);
      return;
    }
    if (!fits<T>(*member)) {
      throw base::Error({base::format("{}.{}", place_, name), kind_of<T>(), dataset::shown(*member),
                         "cohort-sampler --options lists the members of run.json"});
    }
    if constexpr (is_text<T>) {
      value = member->get<std::string>();
    } else if constexpr (std::is_same_v<T, Tiers>) {
      if (member->size() != value.size()) {
        const std::string place = base::format("{}.{}", place_, name);
        throw base::Error({place, base::format("{} numbers", value.size()), std::to_string(member->size()), ""});
      }
      std::ranges::copy(member->get<std::vector<double>>(), value.begin());
    } else {
      value = member->get<T>();
    }
  }

  void read(const char* name, RowOwners& owners);

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

// --- rules: of an option by name, and its value ----------------------------------------------------------

constexpr auto any = [](const char*, const auto&) {};

auto one_of(std::vector<std::string_view> names) {
  return
      [names = std::move(names)](const char* name, const std::string& found) { base::number_of(found, names, name); };
}

auto at_least(int64_t least, const char* expected) {
  return [=](const char* name, int64_t found) { refuse_unless(found >= least, name, expected, std::to_string(found)); };
}

auto between(int64_t least, int64_t most) {
  return [=](const char* name, int64_t found) {
    refuse_unless(found >= least && found <= most, name, base::format("{} to {}", least, most), std::to_string(found));
  };
}

// A number a rank, or none.
auto each_at_least(int64_t least, const char* expected) {
  return [=](const char* name, const std::vector<int64_t>& found) {
    for (int64_t value : found) refuse_unless(value >= least, name, expected, std::to_string(value));
  };
}

void share(const char* name, double found) {
  refuse_unless(found > 0 && found <= 1, name, "a number above 0, at most 1", std::to_string(found));
}

void from_0_to_1(const char* name, double found) {
  refuse_unless(found >= 0 && found <= 1, name, "a number from 0 to 1", std::to_string(found));
}

void each_above_zero(const char* name, const Tiers& found) {
  for (double value : found) refuse_unless(value > 0, name, "numbers above 0", std::to_string(value));
}

void each_not_negative(const char* name, const Tiers& found) {
  for (double value : found) refuse_unless(value >= 0, name, "numbers of at least 0", std::to_string(value));
}

void existing_folder(const char* name, const std::filesystem::path& found) {
  std::error_code ignored;  // a name may be too long
  refuse_unless(std::filesystem::is_directory(found, ignored), name, "an existing folder", found.string());
}

// --- rules of several options ----------------------------------------------------------------------------------------

template <typename T>
void one_a_rank(const char* name, const std::vector<T>& found, const Options& options) {
  refuse_unless(std::ssize(found) == options.num_ranks, name,
                base::format("one for each of {} ranks", options.num_ranks), std::to_string(found.size()));
}

void check_together(const Options& options) {
  if (options.device == "cuda") one_a_rank("gpus", options.gpus, options);
  if (options.cliques != "auto") cache::cliques_named(options.cliques, options.num_ranks);
  if (options.cache_bytes.empty()) return;
  one_a_rank("cache_bytes", options.cache_bytes, options);
  if (!options.rank_hotness.empty()) one_a_rank("rank_hotness", options.rank_hotness, options);
  refuse_unless(options.cache_policy != "plan" || !options.hotness.empty() || !options.rank_hotness.empty(), "hotness",
                "a file of counts for cache_policy plan", "none");
}

void Members::read(const char* name, RowOwners& owners) {
  known_.insert(name);
  const auto object = object_.find(name);
  if (object == object_.end()) return;
  const std::string place = base::format("{}.{}", place_, name);
  Members members(*object, place);
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
                dataset::shown(*object));
}

}  // namespace

NodeCommunities DrawOptions::communities(int64_t num_nodes) const {
  return seed_order == "shuffle" ? NodeCommunities() : NodeCommunities(seed_order, num_nodes);
}

std::filesystem::path rank_folder(const Options& options, int rank) {
  return rank == 0 ? options.channel : options.channel / base::format("rank-{}", rank);
}

#define COHORT_READ(type, name, default_value, rule, about) members.read(#name, options.name);
#define COHORT_CHECK(type, name, default_value, rule, about) (rule)(#name, options.name);

Options read_options(const std::filesystem::path& run_json) {
  const json run = parse(run_json);
  if (!run.is_object() || !run.contains("sampler")) {
    throw base::Error({run_json.string(), "a member \"sampler\"", "none", ""});
  }
  Members members(run["sampler"], run_json.string() + ": sampler");
  Options options;
  COHORT_DRAW_OPTIONS(COHORT_READ)
  COHORT_SAMPLER_OPTIONS(COHORT_READ)
  members.demand("dataset");
  members.demand("channel");
  members.refuse_others();
  COHORT_DRAW_OPTIONS(COHORT_CHECK)
  COHORT_SAMPLER_OPTIONS(COHORT_CHECK)
  check_together(options);
  return options;
}

std::string options_table() {
  std::string table = "| sampler | meaning |\n|---|---|\n";
#define COHORT_ROW(type, name, default_value, rule, about) table += "| `" #name "` | " about " |\n";
  COHORT_SAMPLER_OPTIONS(COHORT_ROW)
  COHORT_DRAW_OPTIONS(COHORT_ROW)
#undef COHORT_ROW
  return table;
}

PresampleOptions read_presample_options(const std::filesystem::path& path) {
  const json file = parse(path);
  Members members(file, path.string());
  PresampleOptions options;
  members.read("dataset", options.dataset, true);
  members.read("fanout", options.fanout, true);
  members.read("batch_size", options.batch_size);
  members.read("split", options.split);
  members.read("seeds", options.seeds);
  members.read("max_batches", options.max_batches);
  members.read("refresh", options.refresh);
  members.read("draw", options.draw);
  members.read("disjoint", options.disjoint);
  members.read("times", options.times);
  members.read("time_window", options.time_window);
  COHORT_DRAW_OPTIONS(COHORT_READ)
  members.refuse_others();
  refuse_unless(!options.fanout.empty() && std::ranges::all_of(options.fanout, [](int32_t k) { return k >= -1; }),
                "fanout", "numbers of at least 0, or -1 for all", options.fanout.empty() ? "none" : "another");
  COHORT_DRAW_OPTIONS(COHORT_CHECK)
  refuse_unless(options.batch_size >= 1, "batch_size", "at least 1", "0");
  refuse_unless(options.max_batches >= 1, "max_batches", "at least 1", std::to_string(options.max_batches));
  return options;
}

}  // namespace cohort::sampler
