// cohort-inspect FOLDER: prints the channel in FOLDER as JSON. It only reads.
#include <cstdio>
#include <exception>

#include "channel/inspect.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: cohort-inspect CHANNEL_FOLDER\n");
    return 2;
  }
  try {
    const std::filesystem::path folder = argv[1];
    const bool loading =
        !std::filesystem::exists(folder / "channel") && std::filesystem::exists(folder / "channel.tmp");
    const auto file =
        cohort::channel::open_channel(folder, cohort::base::Access::kReadOnly, loading ? "channel.tmp" : "channel");
    const auto& header = *reinterpret_cast<const cohort::channel::ChannelHeader*>(file.data());
    std::printf("%s\n", cohort::channel::describe(header).c_str());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cohort-inspect: %s\n", error.what());
    return 1;
  }
}
