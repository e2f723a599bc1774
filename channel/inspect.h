// Looking at a channel from outside, and opening it with care.
#pragma once

#include <filesystem>
#include <string>

#include "channel/layout.h"
#include "channel/shared_file.h"

namespace cohort::channel {

// "waiting for a slot": for messages.
const char* stage_name(Stage stage);

// What a process that has failed said.
std::string error_of(const Party& party);

// Maps <folder>/channel after comparing magic, version, sizes, device and the number of slots; throws Error naming both
// values on a mismatch. To look at a channel that is not announced yet, `name` is "channel.tmp".
base::Mapping open_channel(const std::filesystem::path& folder, base::Access access, const char* name = "channel");

// A live channel as JSON: device, both processes with stage and age, every slot with state, age and batch.
std::string describe(const ChannelHeader& header);

}  // namespace cohort::channel
