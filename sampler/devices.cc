#include "sampler/devices.h"

#include <nlohmann/json.hpp>

#include "cache/probe.h"

#ifdef COHORT_WITH_CUDA
#include <cuda_runtime_api.h>

#include "base/cuda_check.h"
#include "base/device.h"
#endif

namespace cohort::sampler {

std::string describe_devices() {
  nlohmann::json json = {{"cuda_build", false},
                         {"gpus", nlohmann::json::array()},
                         {"cliques", nlohmann::json::array()},
                         {"versions", {0, 0}}};
#ifdef COHORT_WITH_CUDA
  json["cuda_build"] = true;
  std::vector<int> ordinals;
  for (const base::Gpu& gpu : base::visible_gpus()) {
    json["gpus"].push_back({{"ordinal", gpu.ordinal},
                            {"name", gpu.name},
                            {"uuid", base::format_uuid(gpu.uuid)},
                            {"bytes", gpu.total_bytes},
                            {"reads_registered", gpu.reads_registered}});
    ordinals.push_back(gpu.ordinal);
  }
  json["cliques"] = base::peer_cliques(ordinals);
  int driver = 0, runtime = 0;
  base::cuda_check(cudaDriverGetVersion(&driver), "read the driver's version");
  base::cuda_check(cudaRuntimeGetVersion(&runtime), "read the runtime's version");
  json["versions"] = {driver, runtime};
#endif
  return json.dump();
}

std::string describe_memory([[maybe_unused]] std::span<const int> gpus) {
  nlohmann::json json = {{"used_bytes", nlohmann::json::array()}};
#ifdef COHORT_WITH_CUDA
  for (int gpu : gpus) {
    base::choose_gpu(gpu);
    std::size_t free = 0, total = 0;
    base::cuda_check(cudaMemGetInfo(&free, &total), "read free GPU memory");
    json["used_bytes"].push_back(total - free);
  }
#endif
  return json.dump();
}

std::string describe_links([[maybe_unused]] std::span<const int> gpus) {
  nlohmann::json json = {{"gpus", nlohmann::json::array()}};
#ifdef COHORT_WITH_CUDA
  for (const cache::GpuLinks& links : cache::probe_links(gpus)) {
    json["gpus"].push_back(
        {{"uuid", base::format_uuid(links.uuid)}, {"local", links.local}, {"peer", nullptr}, {"host", links.host}});
    if (links.peer) json["gpus"].back()["peer"] = *links.peer;
  }
#endif
  return json.dump();
}

std::string describe_disk(const std::string& file, double seconds) {
  const cache::DiskRates rates = cache::probe_disk(file, std::chrono::duration<double>(seconds));
  const nlohmann::json json = {{"is_direct", rates.is_direct},
                               {"blocks_per_second", rates.blocks_per_second},
                               {"row_reads_per_second", rates.row_reads_per_second},
                               {"rows_per_second", rates.rows_per_second}};
  return json.dump();
}

}  // namespace cohort::sampler
