#include <cuda_runtime_api.h>

#include <cstring>
#include <list>
#include <vector>

#include "base/check.h"
#include "base/device.h"
#include "base/owners.h"
#include "channel/slot_memory.h"

namespace cohort::channel {
namespace {

class CudaSlotOwner final : public SlotOwner {
 public:
  explicit CudaSlotOwner(int num_slots) : memory_(static_cast<std::size_t>(num_slots)) {}

  void grow(Slot& slot, int index, std::size_t bytes) override {
    free_unopened();
    auto& memory = memory_[static_cast<std::size_t>(index)];
    // CUDA leaves it undefined to free memory that another process has open.
    if (slot.generation > 0) retired_.push_back({&slot, slot.generation, std::move(memory)});
    memory = base::DeviceBytes();
    free_unopened();
    require_room(bytes);
    memory = base::DeviceBytes(bytes, "allocate a slot");
    cudaIpcMemHandle_t handle;
    base::cuda_check(cudaIpcGetMemHandle(&handle, memory.data()), "share a slot");
    static_assert(sizeof handle == sizeof slot.memory_handle);
    std::memcpy(slot.memory_handle, &handle, sizeof handle);
    slot.bytes = bytes;
    ++slot.generation;
  }
  std::byte* data(int index) const override { return memory_[static_cast<std::size_t>(index)].data(); }

 private:
  struct Retired {
    const Slot* slot;
    uint64_t generation;
    base::DeviceBytes memory;
  };
  static void require_room(std::size_t bytes) {
    const int64_t free = base::free_device_bytes();
    if (static_cast<int64_t>(bytes) <= free) return;
    throw base::Error({"GPU memory for a slot", base::format_bytes(static_cast<double>(bytes)),
                       base::format_bytes(static_cast<double>(free)) + " free",
                       "use fewer --slots, a smaller --batch-size or --fanout, or --topology host"});
  }
  void free_unopened() {
    retired_.remove_if([](const Retired& old) { return old.slot->opened_generation.load() != old.generation; });
  }
  std::vector<base::DeviceBytes> memory_;
  std::list<Retired> retired_;
};

class CudaSlotViewer final : public SlotViewer {
 public:
  explicit CudaSlotViewer(int num_slots) : opened_(static_cast<std::size_t>(num_slots), nullptr) {}
  ~CudaSlotViewer() override {
    for (void* data : opened_) {
      if (data) cudaIpcCloseMemHandle(data);
    }
  }

  std::byte* open(Slot& slot, int index) override {
    void*& data = opened_[static_cast<std::size_t>(index)];
    if (slot.opened_generation.load() != slot.generation) {
      if (data) base::cuda_check(cudaIpcCloseMemHandle(std::exchange(data, nullptr)), "close an old slot");
      cudaIpcMemHandle_t handle;
      std::memcpy(&handle, slot.memory_handle, sizeof handle);
      base::cuda_check(cudaIpcOpenMemHandle(&data, handle, cudaIpcMemLazyEnablePeerAccess), "open a slot");
      slot.opened_generation.store(slot.generation);
    }
    return static_cast<std::byte*>(data);
  }

 private:
  std::vector<void*> opened_;
};

}  // namespace

std::unique_ptr<SlotOwner> make_cuda_slot_owner(int num_slots) { return std::make_unique<CudaSlotOwner>(num_slots); }

std::unique_ptr<SlotViewer> make_cuda_slot_viewer(int num_slots) { return std::make_unique<CudaSlotViewer>(num_slots); }

}  // namespace cohort::channel
