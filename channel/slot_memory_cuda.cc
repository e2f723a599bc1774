#include <array>
#include <vector>

#include "base/device.h"
#include "base/shared_gpu_bytes.h"
#include "channel/descriptor_socket.h"
#include "channel/slot_memory.h"

namespace cohort::channel {
namespace {

using base::SharedGpuBytes;

DescriptorTag tag_of_rows(std::size_t type, std::size_t piece) { return {kMaxSlots + type * kMaxRowPieces + piece, 1}; }

DescriptorTag tag_of(const Slot& slot, int index) { return {static_cast<uint64_t>(index), slot.generation}; }

class CudaSlotOwner final : public SlotOwner {
 public:
  CudaSlotOwner(const std::filesystem::path& folder, int num_slots)
      : memory_(static_cast<std::size_t>(num_slots)), trainer_(folder) {}

  void grow(Slot& slot, int index, std::size_t needed_bytes, std::size_t preferred_bytes) override {
    SharedGpuBytes& memory = memory_[static_cast<std::size_t>(index)];
    memory = SharedGpuBytes();
    memory = make_memory(memory_, free_bytes(), needed_bytes, preferred_bytes, [](std::size_t bytes) {
      require_room(bytes);
      return SharedGpuBytes(bytes, "allocate a slot");
    });
    slot.bytes = memory.bytes();
    ++slot.generation;
    trainer_.send(tag_of(slot, index), memory.share());
  }
  std::byte* data(int index) const override { return memory_[static_cast<std::size_t>(index)].data(); }
  void share_rows(std::size_t type, std::size_t piece, const SharedGpuBytes& rows) override {
    trainer_.send(tag_of_rows(type, piece), rows.share());
  }
  void hand_over() override { trainer_.send_waiting(); }

 private:
  static std::size_t free_bytes() { return static_cast<std::size_t>(base::free_device_bytes()); }
  static void require_room(std::size_t bytes) {
    base::demand_bytes(static_cast<int64_t>(bytes), base::free_device_bytes(), "GPU memory for a slot", "",
                       "use fewer --slots, a smaller --batch-size or --fanout, or --topology host", "free");
  }
  std::vector<SharedGpuBytes> memory_;
  DescriptorSender trainer_;
};

class CudaSlotViewer final : public SlotViewer {
 public:
  CudaSlotViewer(const std::filesystem::path& folder, int num_slots)
      : opened_(static_cast<std::size_t>(num_slots)), sampler_(folder) {}

  std::byte* open(Slot& slot, int index) override {
    const base::CurrentGpu gpu(gpu_);
    Opened& opened = opened_[static_cast<std::size_t>(index)];
    if (opened.generation != slot.generation) {
      opened.memory = SharedGpuBytes();
      opened.memory = SharedGpuBytes(sampler_.receive(tag_of(slot, index)), slot.bytes, "open a slot");
      opened.generation = slot.generation;
    }
    return opened.memory.data();
  }
  const std::byte* rows(const ChannelHeader& header, std::size_t type) override {
    const base::CurrentGpu gpu(gpu_);
    base::GrowingGpuBytes& rows = rows_[type];
    const NamedRows& shared = header.rows[type];
    if (!rows.data()) rows = base::GrowingGpuBytes(static_cast<std::size_t>(shared.num_rows * shared.stride_bytes));
    open_rows(header, type);
    return rows.data();
  }
  void open_rows(const ChannelHeader& header) override {
    for (std::size_t type = 0; type < rows_.size(); ++type) open_rows(header, type);
  }

 private:
  void open_rows(const ChannelHeader& header, std::size_t type) {
    base::GrowingGpuBytes& rows = rows_[type];
    const std::size_t shared = header.rows[type].num_pieces.load(std::memory_order_acquire);
    if (!rows.data() || rows.pieces().size() == shared) return;
    base::require(shared <= kMaxRowPieces, "at most kMaxRowPieces of the memory of rows");
    const base::CurrentGpu gpu(gpu_);
    for (std::size_t piece = rows.pieces().size(); piece < shared; ++piece) {
      const uint64_t bytes = header.rows[type].piece_bytes[piece];
      rows.add(sampler_.receive(tag_of_rows(type, piece)), bytes, "open the feature rows");
    }
  }

  struct Opened {
    uint64_t generation = 0;
    SharedGpuBytes memory;
  };
  int gpu_ = base::current_gpu();
  std::vector<Opened> opened_;
  std::array<base::GrowingGpuBytes, kMaxTypes> rows_;  // of each type
  DescriptorReceiver sampler_;
};

}  // namespace

std::unique_ptr<SlotOwner> make_cuda_slot_owner(const std::filesystem::path& folder, int num_slots) {
  return std::make_unique<CudaSlotOwner>(folder, num_slots);
}

std::unique_ptr<SlotViewer> make_cuda_slot_viewer(const std::filesystem::path& folder, int num_slots) {
  return std::make_unique<CudaSlotViewer>(folder, num_slots);
}

}  // namespace cohort::channel
