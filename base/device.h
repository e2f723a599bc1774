// The GPUs of this machine, asked of the CUDA runtime.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace cohort::base {

using GpuUuid = std::array<unsigned char, 16>;

struct Gpu {
  int ordinal = 0;  // CUDA's number for it in this process
  GpuUuid uuid{};   // the same in every process, whatever CUDA_VISIBLE_DEVICES says
  std::string name;
  int num_sms = 0;
  int64_t total_bytes = 0;
  bool reads_registered = false;  // memory of the host that is registered with CUDA, at the host's addresses
};

// The visible GPUs; empty when there is none or no driver. Throws Error on any other CUDA failure.
std::vector<Gpu> visible_gpus();

// The ordinal of the GPU with this UUID; throws Error when it is not visible here.
int ordinal_of(const GpuUuid& uuid);

// "GPU-ce64ad01-c5c9-...": as nvidia-smi prints it.
std::string format_uuid(const GpuUuid& uuid);

// Whether kernels on one GPU (ordinals) can read another's memory.
bool can_read_peer(int reader, int owner);

// `gpus` in groups within which each reads every other: each, in the order given, joins the first group all of whose
// members it reads and is read by, unless that has `most` members.
std::vector<std::vector<int>> cliques_of(std::span<const int> gpus, std::size_t most,
                                         const std::function<bool(int, int)>& can_read);
// The same as the runtime answers, of any size.
std::vector<std::vector<int>> peer_cliques(std::span<const int> gpus);

// The current GPU's ordinal. Throws Error.
int current_gpu();

// Makes a GPU the thread's current one.
void choose_gpu(int ordinal);

// Lets the current GPU read the memory of another. False where it cannot.
bool open_peer(int ordinal);

// Makes a GPU the thread's current one for as long as it lives. The one before is chosen again where the process uses
// it: choosing it would make a context there, which takes memory.
class CurrentGpu {
 public:
  explicit CurrentGpu(int ordinal);
  ~CurrentGpu();
  CurrentGpu(const CurrentGpu&) = delete;
  CurrentGpu& operator=(const CurrentGpu&) = delete;

 private:
  int before_;
  bool returns_ = false;
};

// Free bytes of the current device.
int64_t free_device_bytes();

// Bytes of shared memory that a kernel's block may ask for on the current device.
uint32_t most_shared_bytes();

}  // namespace cohort::base
