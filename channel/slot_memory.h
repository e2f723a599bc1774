// The memory of slots: who owns it (sampler) and who looks at it (trainer).
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/check.h"
#include "channel/layout.h"

namespace cohort::base {
class SharedGpuBytes;
}

namespace cohort::channel {

// Sampler's side. A slot is grown by replacing its memory; the old one lives as long as the trainer has it mapped.
class SlotOwner {
 public:
  virtual ~SlotOwner() = default;
  // Gives slot `index` other memory, of `preferred_bytes` where that leaves the other slots what this one needs, else
  // of `needed_bytes`, and writes bytes and generation into it. Throws base::Error naming need and supply.
  virtual void grow(Slot& slot, int index, std::size_t needed_bytes, std::size_t preferred_bytes) = 0;
  virtual std::byte* data(int index) const = 0;
  // Lets the trainer map a piece of the memory of a type's rows that batches name; on the CPU there is none.
  virtual void share_rows(std::size_t /*type*/, std::size_t /*piece*/, const base::SharedGpuBytes&) {}
  // Hands over what the trainer was not there for.
  virtual void hand_over() {}
};

// Trainer's side.
class SlotViewer {
 public:
  virtual ~SlotViewer() = default;
  // The slot's memory; opens a new generation when there is one. Valid until the next call for the same slot.
  virtual std::byte* open(Slot& slot, int index) = 0;
  // Where what share_rows() shares of a type is mapped, as far as open_rows() has done so.
  virtual const std::byte* rows(const ChannelHeader&, std::size_t /*type*/) { return nullptr; }
  virtual void open_rows(const ChannelHeader&) {}
};

// For owners: make(bytes) with `preferred_bytes` where `free_bytes` then still have `needed_bytes` for each other slot
// of less than that, else with `needed_bytes`. `memories`: of all slots; the one to be made is empty.
template <typename Memory, typename Make>
Memory make_memory(const std::vector<Memory>& memories, std::size_t free_bytes, std::size_t needed_bytes,
                   std::size_t preferred_bytes, Make make) {
  const auto smaller = [&](const Memory& memory) { return memory.bytes() < needed_bytes; };
  const auto others = static_cast<std::size_t>(std::ranges::count_if(memories, smaller) - 1);
  if (preferred_bytes + needed_bytes * others <= free_bytes) {
    try {
      return make(preferred_bytes);
    } catch (const base::Error&) {  // another process has taken it in between; what is needed may be there yet
    }
  }
  return make(needed_bytes);
}

// Files in the channel's folder.
std::unique_ptr<SlotOwner> make_host_slot_owner(std::filesystem::path folder, int num_slots);
std::unique_ptr<SlotViewer> make_host_slot_viewer(std::filesystem::path folder, int num_slots);

// Memory of the current GPU, whose descriptors go through a socket in the channel's folder.
std::unique_ptr<SlotOwner> make_cuda_slot_owner(const std::filesystem::path& folder, int num_slots);
std::unique_ptr<SlotViewer> make_cuda_slot_viewer(const std::filesystem::path& folder, int num_slots);

}  // namespace cohort::channel
