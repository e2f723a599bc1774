#include <algorithm>
#include <vector>

#include "base/format.h"
#include "base/host_memory.h"
#include "channel/shared_file.h"
#include "channel/slot_memory.h"

namespace cohort::channel {
namespace {

std::filesystem::path slot_path(const std::filesystem::path& folder, int index, uint64_t generation) {
  return folder / base::format("slot-{}-{}", index, generation);
}

void demand_bytes(const std::filesystem::path& path, std::size_t expected, std::size_t found) {
  if (expected == found) return;
  throw base::Error({path.string(), base::format("{} bytes, as the channel says", expected),
                     base::format("{} bytes", found), "the channel is damaged: end the run and start it again"});
}

// A removed file lives on in the mappings of it, so the old generation needs no bookkeeping. Slots take host memory
// when they are made: they find room in the folder's file system and in the memory that is available, of which
// COHORT_HOST_MEMORY_BYTES says how much there was before the first slot.
class HostSlotOwner final : public SlotOwner {
 public:
  HostSlotOwner(std::filesystem::path folder, int num_slots)
      : folder_(std::move(folder)), files_(static_cast<std::size_t>(num_slots)) {}

  void grow(Slot& slot, int index, std::size_t needed_bytes, std::size_t preferred_bytes) override {
    auto& file = files_[static_cast<std::size_t>(index)];
    if (slot.generation > 0) std::filesystem::remove(slot_path(folder_, index, slot.generation));
    file = base::Mapping();
    const auto path = slot_path(folder_, index, slot.generation + 1);
    base::demand_bytes(static_cast<int64_t>(needed_bytes), available_bytes(), "host memory for a slot", "",
                       "use fewer --slots, a smaller --batch-size or --fanout", "available");
    const auto free_bytes = std::min(free_bytes_of(folder_), static_cast<std::size_t>(available_bytes()));
    file = make_memory(files_, free_bytes, needed_bytes, preferred_bytes,
                       [&](std::size_t bytes) { return create_shared_file(path, bytes); });
    slot.bytes = file.bytes();
    ++slot.generation;
  }
  std::byte* data(int index) const override { return files_[static_cast<std::size_t>(index)].data(); }

 private:
  // Of host memory, besides the slots that there are.
  int64_t available_bytes() const {
    int64_t before = available_before_;
    for (const base::Mapping& file : files_) before -= static_cast<int64_t>(file.bytes());
    return std::max<int64_t>(0, std::min(before, base::available_host_bytes()));
  }

  std::filesystem::path folder_;
  std::vector<base::Mapping> files_;
  int64_t available_before_ = base::available_host_bytes();
};

class HostSlotViewer final : public SlotViewer {
 public:
  HostSlotViewer(std::filesystem::path folder, int num_slots)
      : folder_(std::move(folder)), opened_(static_cast<std::size_t>(num_slots)) {}

  std::byte* open(Slot& slot, int index) override {
    auto& [generation, file] = opened_[static_cast<std::size_t>(index)];
    if (file.data() == nullptr || generation != slot.generation) {
      const std::filesystem::path path = slot_path(folder_, index, slot.generation);
      file = base::Mapping();
      file = base::Mapping::of(path, base::Access::kReadWrite);
      demand_bytes(path, slot.bytes, file.bytes());
      generation = slot.generation;
    }
    return file.data();
  }

 private:
  struct Opened {
    uint64_t generation = 0;
    base::Mapping file;
  };
  std::filesystem::path folder_;
  std::vector<Opened> opened_;
};

}  // namespace

std::unique_ptr<SlotOwner> make_host_slot_owner(std::filesystem::path folder, int num_slots) {
  return std::make_unique<HostSlotOwner>(std::move(folder), num_slots);
}

std::unique_ptr<SlotViewer> make_host_slot_viewer(std::filesystem::path folder, int num_slots) {
  return std::make_unique<HostSlotViewer>(std::move(folder), num_slots);
}

}  // namespace cohort::channel
