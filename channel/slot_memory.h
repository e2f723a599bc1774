// The memory of slots: who owns it (sampler) and who looks at it (trainer).
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>

#include "channel/layout.h"

namespace cohort::channel {

// Sampler's side. A slot is grown by replacing its memory; the old one lives until the trainer has let go of it.
class SlotOwner {
 public:
  virtual ~SlotOwner() = default;
  // Gives slot `index` memory of at least `bytes` and writes handle, bytes and generation into it.
  virtual void grow(Slot& slot, int index, std::size_t bytes) = 0;
  virtual std::byte* data(int index) const = 0;
};

// Trainer's side.
class SlotViewer {
 public:
  virtual ~SlotViewer() = default;
  // The slot's memory; opens a new generation when there is one. Valid until the next call for the same slot.
  virtual std::byte* open(Slot& slot, int index) = 0;
};

// Files in the channel's folder.
std::unique_ptr<SlotOwner> make_host_slot_owner(std::filesystem::path folder, int num_slots);
std::unique_ptr<SlotViewer> make_host_slot_viewer(std::filesystem::path folder, int num_slots);

#ifdef COHORT_WITH_CUDA
// Allocations of the current GPU, shared through CUDA IPC.
std::unique_ptr<SlotOwner> make_cuda_slot_owner(int num_slots);
std::unique_ptr<SlotViewer> make_cuda_slot_viewer(int num_slots);
#endif

}  // namespace cohort::channel
