// Any text as run.json (byte 0 even) or as the options of a count (odd).
#include "sampler/options.h"
#include "base/check.h"
#include "sampler/presample.h"
#include "tests/fuzz/fuzz.h"

namespace cohort::fuzz {

std::vector<std::string> seeds() {
  const std::string run = R"({"sampler": {"dataset": "data", "channel": "/tmp", "device": "cpu", "num_ranks": 2,
    "gpus": [0, 1], "topology": "auto", "compress": "host", "num_slots": 3, "fetch_sms": 8, "reuse": true, "seed": 7,
    "owner_pid": 1, "end_with_parent": false, "poison_slots": false, "slow_fetch_us": 0, "illegal_access_batch": -1,
    "cache_bytes": [1000, 5000000000], "cache_policy": "plan", "order": "asis", "hotness": "counts.bin",
    "rank_hotness": ["a", "b"], "cliques": "1x2", "bytes_per_second": [3e12, 4e11, 5e10],
    "seconds_per_line": [0, 1e-9, 2e-9], "plan_file": "plan.json"}, "trainer": {}})";
  const std::string count = R"({"dataset": "data", "fanout": [25, 10, -1], "batch_size": 1024, "split": "train",
    "seeds": "seeds.npy", "max_batches": 200, "refresh": true})";
  return {'0' + run, '1' + count, std::string(R"(0{"sampler": {"dataset": "", "channel": "/tmp"}})"),
          std::string(R"(1{"fanout": [1], "dataset": ""})")};
}

void run(std::span<const std::byte> input) {
  if (input.empty()) return;
  const MemoryFile file(input.subspan(1));
  try {
    if (std::to_integer<int>(input[0]) % 2 == 0) {
      const sampler::Options options = sampler::read_options(file.path());
      demand(options.num_ranks >= 1 && options.fetch_sms >= 0, "options in their ranges");
      demand(options.device == "cpu" || options.gpus.size() == static_cast<std::size_t>(options.num_ranks),
             "a GPU each");
    } else {
      const sampler::PresampleOptions options = sampler::read_presample_options(file.path());
      demand(!options.fanout.empty() && options.batch_size >= 1 && options.max_batches >= 1, "options in their ranges");
    }
  } catch (const base::Error&) {
  }
}

}  // namespace cohort::fuzz
