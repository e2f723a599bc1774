// The sampler's end of the channel.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "base/gpu_stream.h"
#include "base/process.h"
#include "channel/shared_file.h"
#include "channel/slot_memory.h"
#include "channel/slot_size.h"
#include "channel/wait.h"

#ifdef COHORT_WITH_CUDA
#include "base/owners.h"
#endif

namespace cohort::channel {

// What is fixed for a channel's life.
struct ChannelOptions {
  DeviceKind device = DeviceKind::kCpu;
  unsigned char gpu_uuid[16] = {};
  int num_slots = 4;
  int32_t owner_pid = 0;                    // the process that started the run; 0: nobody to look after
  std::vector<Table> tables = {{}};         // feature rows of each node type
  std::vector<int32_t> target_types = {0};  // of each relation
  std::vector<Table> edge_tables = {};      // feature rows of the edges of each relation; empty: batches have none
  int32_t label_type = 0;                   // whose nodes have labels
  uint32_t label_dtype = 64;                // DLPack code << 8 | bits: int64
  int64_t label_width = 0;                  // labels of a node; 0: one, and y has one dimension
  bool with_e_id = false;                   // batches say which edges they have
  bool with_edge_weight = false;
};

// Rows of one node type that batches name, where slots have none; see NamedRows.
struct RowsOfType {
  int64_t num_rows = 0;
  int64_t stride_bytes = 0;
};

class Publisher {
 public:
  // Builds the channel in `folder` (which exists), not yet visible to the trainer.
  Publisher(std::filesystem::path folder, const ChannelOptions& options);
  ~Publisher();
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

  // Slots have no feature rows. To be called before announce().
  void name_rows(RowsIn in, const std::vector<RowsOfType>& types);
  // The next piece of the memory of a type's rows, on the channel's GPU; it stays as long as the channel. Of a table
  // before announce().
  void share_rows(std::size_t type, const base::SharedGpuBytes& piece);

  // Makes the channel visible: from now on the sampler is ready.
  void announce();

  // Waits for the trainer's next request; nullopt when the run stops, or its owner has died.
  std::optional<Request> next_request();
  // Whether next_request() has one without waiting.
  bool has_request();

  // Whether nobody wants batches of the pass: it was cancelled, or the run stops.
  bool given_up(uint64_t pass) const { return pass < header().cancelled_below.load() || header().stop.load(); }

  // Waits for a free slot and takes the one whose batch is the oldest: the others still hold batches that rows can be
  // copied from. nullopt when the run stops or `pass` was cancelled.
  std::optional<int> acquire(uint64_t pass);
  // The same, or nullopt when none is free now.
  std::optional<int> try_acquire(uint64_t pass);

  // The slot's memory, at least `needed_bytes`. When it is smaller it is replaced by `preferred_bytes` (>=
  // needed_bytes), where that leaves room for the other slots. Call only while holding the slot, before writing to it.
  std::byte* memory(int slot, std::size_t needed_bytes, std::size_t preferred_bytes);

  // Work put on the CUDA stream `stream` after this waits until the trainer's GPU work on the slot's last use is done.
  // Nothing to wait for on the CPU.
  void wait_drained(int slot, base::GpuStream stream);

  // The sequence number of the oldest batch that the trainer may still read, or has yet to, but for the one that
  // `slot` had, which the sampler fills now.
  uint64_t oldest_in_use(int slot) const;

  // Whether a batch waits for the trainer to take it.
  bool any_ready() const;

  // Hands the slot, filled and complete, to the trainer.
  void publish(int slot, const Batch& batch);

  void set_stage(Stage stage, uint64_t batch = 0) { channel::set_stage(header().sampler, stage, batch); }
  void leave_error(const char* text) { channel::leave_error(header().sampler, text); }
  std::atomic<uint32_t>& stop_flag() const { return header().stop; }
  // Whether nobody wants batches any more: the run stops, or the trainer has ended well. Throws PeerLost when it is
  // dead.
  bool is_over() const;
  // Whether a trainer was there and is dead, without having ended.
  bool trainer_died() const;
  const std::filesystem::path& folder() const { return folder_; }
  uint64_t next_sequence() const { return next_sequence_; }

 private:
  ChannelHeader& header() const { return *reinterpret_cast<ChannelHeader*>(file_.data()); }
  std::span<Slot> slots() const { return slots_of(header()); }
  Slot& slot_at(int slot) const { return slots()[static_cast<std::size_t>(slot)]; }
  bool owner_gone() const { return owner_.pid != 0 && !base::is_alive(owner_); }
  int take_oldest();
  bool leaves_rows(int slot, bool is_free) const;  // whether all that read rows of its batch has ended

  std::filesystem::path folder_;
  base::ProcessId owner_;
  base::Mapping file_;
  std::unique_ptr<SlotOwner> memory_;
#ifdef COHORT_WITH_CUDA
  std::vector<base::Event> drained_, rows_left_;
#endif
  uint64_t next_sequence_ = 0;
  uint64_t next_request_ = 0;
};

}  // namespace cohort::channel
