#include "channel/inspect.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/format.h"
#include "base/process.h"

namespace cohort::channel {
namespace {

// In doubles: a damaged time is any number.
double seconds_since(int64_t us) { return (static_cast<double>(base::monotonic_us()) - static_cast<double>(us)) / 1e6; }

// In the order of the enumerators.
constexpr std::array kStates = {"free", "filling", "ready", "held by the trainer"};
constexpr std::array kStages = {"not started", "starting", "loading the data set", "idle",     "waiting for a slot",
                                "sampling",    "fetching", "waiting for a batch",  "training", "ended"};

template <std::size_t kCount, typename Enum>
const char* name_in(const std::array<const char*, kCount>& names, Enum value) {
  const auto number = static_cast<std::size_t>(value);
  return number < kCount ? names[number] : "unknown";
}

nlohmann::json describe_party(const Party& party) {
  const int32_t pid = party.pid.load();
  nlohmann::json json = {{"pid", pid},
                         {"alive", base::is_alive({pid, party.start_time.load()})},
                         {"stage", stage_name(static_cast<Stage>(party.stage.load()))},
                         {"batch", party.stage_batch.load()},
                         {"stage_seconds", pid == 0 ? 0.0 : seconds_since(party.stage_since_us.load())}};
  if (party.failed_at_us.load() != 0) {
    json["error"] = error_of(party);
    json["failed_at_us"] = party.failed_at_us.load();
  }
  return json;
}

nlohmann::json describe_slot(const Slot& slot) {
  const auto state = static_cast<SlotState>(slot.state.load(std::memory_order_acquire));
  nlohmann::json json = {{"state", name_in(kStates, state)}, {"bytes", slot.bytes}, {"generation", slot.generation}};
  if (slot.state_since_us.load() != 0) json["state_seconds"] = seconds_since(slot.state_since_us.load());
  if (state == SlotState::kReady || state == SlotState::kHeld) {
    json["batch"] = slot.batch.sequence;
    json["step"] = slot.batch.step;
    json["num_steps"] = slot.batch.num_steps;
    json["num_nodes"] = slot.batch.num_nodes;
    json["num_edges"] = slot.batch.num_edges;
  }
  return json;
}

void refuse(const std::filesystem::path& path, const char* what, uint64_t expected, uint64_t found) {
  if (expected == found) return;
  throw base::Error({path.string(), base::format("{} {:#x}", what, expected), base::format("{:#x}", found),
                     "sampler and trainer must come from the same build of cohort"});
}

constexpr const char* kDamaged = "the channel is damaged: end the run and start it again";

// The numbers that readers index and branch by, and the size that follows from them.
void refuse_damage(const std::filesystem::path& path, const ChannelHeader& header, std::size_t bytes) {
  const auto device = static_cast<uint32_t>(header.device);
  const bool knows_slots = header.num_slots >= 2 && header.num_slots <= kMaxSlots;
  if (!knows_slots || device > static_cast<uint32_t>(DeviceKind::kCuda)) {
    throw base::Error({path.string(), base::format("2 to {} slots on device 0 or 1", kMaxSlots),
                       base::format("{} slots on device {}", header.num_slots, device), kDamaged});
  }
  refuse(path, "size", channel_bytes(header.num_slots), bytes);
  const auto is_type = [&](int32_t type) { return type >= 0 && type < header.num_types; };
  const bool knows_types = header.num_types >= 1 && header.num_types <= kMaxTypes && header.num_relations >= 1 &&
                           header.num_relations <= kMaxRelations;
  if (knows_types && is_type(header.label_type) && std::ranges::all_of(target_types_of(header), is_type)) return;
  throw base::Error({path.string(),
                     base::format("1 to {} types and 1 to {} relations between them", kMaxTypes, kMaxRelations),
                     base::format("{} types and {} relations", header.num_types, header.num_relations), kDamaged});
}

}  // namespace

std::string error_of(const Party& party) { return {party.error, strnlen(party.error, kErrorBytes)}; }

const char* stage_name(Stage stage) { return name_in(kStages, stage); }

base::Mapping open_channel(const std::filesystem::path& folder, base::Access access, const char* name) {
  const std::filesystem::path path = folder / name;
  base::Mapping file = base::Mapping::of(path, access);
  if (file.bytes() < sizeof(ChannelHeader)) refuse(path, "size", sizeof(ChannelHeader), file.bytes());
  const auto& header = *reinterpret_cast<const ChannelHeader*>(file.data());
  refuse(path, "magic", kMagic, header.magic);
  refuse(path, "version", kVersion, header.version);
  refuse(path, "header size", sizeof(ChannelHeader), header.header_bytes);
  refuse_damage(path, header, file.bytes());
  return file;
}

std::string describe(const ChannelHeader& header) {
  nlohmann::json json = {{"device", header.device == DeviceKind::kCpu ? "cpu" : "cuda"},
                         {"stopping", header.stop.load() != 0},
                         {"sampler", describe_party(header.sampler)},
                         {"trainer", describe_party(header.trainer)},
                         {"slots", nlohmann::json::array()}};
  for (const Slot& slot : slots_of(header)) json["slots"].push_back(describe_slot(slot));
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace cohort::channel
