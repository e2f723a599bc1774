#include "channel/subscriber.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/device.h"
#include "base/format.h"
#include "base/process.h"
#include "channel/inspect.h"

namespace cohort::channel {
namespace {

uint64_t bytes_of(uint32_t dlpack_code) { return (dlpack_code & 0xFF) / 8; }

uint64_t row_bytes_of(const Table& table) {
  return static_cast<uint64_t>(table.feature_dim) * bytes_of(table.feature_dtype);
}

bool has_ended(const Party& party) { return static_cast<Stage>(party.stage.load()) == Stage::kEnded; }

// Whether sizes by type and by relation are those of the batch. None is negative or exceeds what the others leave of
// the sum, so that no sum overflows.
bool adds_up(const ChannelHeader& header, const Batch& batch) {
  const auto sums_to = [](const auto* parts, int count, int num_hops, int64_t expected) {
    int64_t sum = 0;
    for (int which = 0; which < count; ++which) {
      for (int hop = 0; hop < num_hops; ++hop) {
        const int64_t size = parts[which].per_hop[hop];
        if (size < 0 || size > expected - sum) return false;
        sum += size;
      }
    }
    return sum == expected;
  };
  return sums_to(batch.nodes, header.num_types, batch.num_hops + 1, batch.num_nodes) &&
         sums_to(batch.edges, header.num_relations, batch.num_hops, batch.num_edges) && batch.num_local_edges >= 0 &&
         batch.num_local_edges <= batch.num_edges && batch.num_labels >= 0 &&
         batch.num_labels <= nodes_of(batch, static_cast<std::size_t>(header.label_type));
}

// What a slot's batch says lies in the slot.
bool lies_in_slot(const ChannelHeader& header, const Slot& slot) {
  const Batch& batch = slot.batch;
  const auto fits = [&](uint64_t offset, int64_t count, uint64_t bytes_each) {
    if (offset > slot.bytes || count < 0) return false;
    return bytes_each == 0 || static_cast<uint64_t>(count) <= (slot.bytes - offset) / bytes_each;
  };
  const bool knows_hops = batch.num_hops >= 0 && batch.num_hops <= kMaxHops;
  if (!knows_hops || !adds_up(header, batch)) return false;
  const bool has_rows = header.rows_in == RowsIn::kSlots;
  for (std::size_t type = 0; std::cmp_less(type, header.num_types); ++type) {
    const uint64_t bytes = has_rows ? row_bytes_of(header.tables[type]) : 0;
    if (!fits(batch.nodes[type].x_offset, nodes_of(batch, type), bytes)) return false;
  }
  for (std::size_t relation = 0; std::cmp_less(relation, header.num_relations); ++relation) {
    const uint64_t bytes = row_bytes_of(header.edge_tables[relation]);
    if (!fits(batch.edges[relation].edge_attr_offset, edges_of(batch, relation), bytes)) return false;
  }
  const auto labels = static_cast<uint64_t>(header.label_width > 0 ? header.label_width : 1);
  // A batch without seeds has no offsets.
  const int64_t offsets = batch.num_nodes > 0 ? num_offsets(batch, target_types_of(header)) : 0;
  return fits(batch.indptr_offset, offsets, 8) && fits(batch.n_id_offset, batch.num_nodes, 8) &&
         fits(batch.row_index_offset, batch.num_nodes, 8) &&
         fits(batch.y_offset, batch.num_labels, labels * bytes_of(header.label_dtype)) && batch.num_pairs >= 0 &&
         batch.num_endpoints >= 0 && fits(batch.input_id_offset, num_inputs(batch), 8) &&
         fits(batch.input_id_offset + 8 * static_cast<uint64_t>(num_inputs(batch)), batch.num_endpoints, 8) &&
         fits(batch.edge_index_offset, batch.num_local_edges, 16) &&
         fits(batch.source_node_offset, batch.num_edges, batch.last_hop_global ? 8 : 0) &&
         fits(batch.e_id_offset, batch.num_edges, header.with_e_id ? 8 : 0) &&
         fits(batch.edge_weight_offset, batch.num_edges, header.with_edge_weight ? 4 : 0) &&
         fits(batch.tree_offset, batch.num_nodes, batch.disjoint ? 8 : 0);
}

}  // namespace

Subscriber::Subscriber(std::filesystem::path folder)
    : folder_(std::move(folder)), file_(open_channel(folder_, base::Access::kReadWrite)) {
  if (header().trainer.pid.load() != 0) {
    throw base::Error({(folder_ / "channel").string(), "no trainer yet",
                       base::format("process {}", header().trainer.pid.load()), "one sampler serves one trainer"});
  }
  enter(shared().trainer);
  if (header().device == DeviceKind::kCpu) {
    memory_ = make_host_slot_viewer(folder_, header().num_slots);
    return;
  }
#ifdef COHORT_WITH_CUDA
  base::GpuUuid uuid;
  std::memcpy(uuid.data(), header().gpu_uuid, uuid.size());
  ordinal_ = base::ordinal_of(uuid);
  const base::CurrentGpu gpu(ordinal_);
  memory_ = make_cuda_slot_viewer(folder_, header().num_slots);
  for (int i = 0; i < header().num_slots; ++i) {
    const auto open = [](std::vector<base::Event>& events, const unsigned char(&from)[64]) {
      cudaIpcEventHandle_t handle;
      std::memcpy(&handle, from, sizeof handle);
      events.emplace_back(handle);
    };
    open(drained_, slot_at(i).drained_handle);
    open(rows_left_, slot_at(i).rows_left_handle);
  }
#else
  throw base::Error({(folder_ / "channel").string(), "device cpu", "device cuda", "this build has no CUDA backend"});
#endif
}

Subscriber::~Subscriber() { set_stage(Stage::kEnded); }

const std::byte* Subscriber::rows(std::size_t type) {
  base::require(header().rows_in != RowsIn::kSlots && header().device == DeviceKind::kCuda && type < kMaxTypes &&
                    header().rows[type].num_rows > 0,
                "rows in the memory of a GPU");
  return memory_->rows(header(), type);
}

uint64_t Subscriber::request(Request request) {
  refuse_in_child();
  if (!wait_for(shared().requests_free, shared().stop, header().sampler, "sampler")) {
    throw_stopped();
  }
  request.pass = next_pass_++;
  shared().requests[(request.pass - 1) % kMaxRequests] = request;
  post(shared().requests_posted);
  return request.pass;
}

HeldBatch Subscriber::next(uint64_t pass, int64_t limit_us, const std::function<bool()>& interrupted) {
  refuse_in_child();
  bool was_interrupted = false;
  const auto give_up = [&] { return was_interrupted = interrupted && interrupted(); };
  while (true) {
    refuse_when_all_are_held();
    set_stage(Stage::kWaitBatch, next_sequence_);
    if (!wait_for(shared().batches_ready, shared().stop, header().sampler, "sampler", give_up, limit_us)) {
      if (was_interrupted) return {};
      throw_stopped();
    }
    int index = 0;
    while (index < header().num_slots &&
           (static_cast<SlotState>(slot_at(index).state.load(std::memory_order_acquire)) != SlotState::kReady ||
            slot_at(index).batch.sequence != next_sequence_)) {
      ++index;
    }
    base::require(index < header().num_slots, "the batch of the next sequence number in a ready slot");
    ++next_sequence_;
    Slot& slot = slot_at(index);
    std::byte* data = memory_->open(slot, index);
    memory_->open_rows(header());
    base::require(lies_in_slot(header(), slot), "a batch that lies in its slot");
    set_state(slot, SlotState::kHeld);
    if (slot.batch.pass >= pass) {
      base::require(slot.batch.pass == pass, "batches of the pass asked for");
      set_stage(Stage::kTraining, slot.batch.sequence);
      return {index, &slot.batch, data};
    }
    set_state(slot, SlotState::kFree);
    post(shared().slots_free);
  }
}

void Subscriber::cancel_below(uint64_t pass) {
  if (!in_child()) shared().cancelled_below.store(pass);
}

void Subscriber::release(int index, [[maybe_unused]] base::GpuStream stream,
                         [[maybe_unused]] std::span<const base::GpuStream> others) {
  if (in_child()) return;
  const std::lock_guard lock(release_mutex_);
  Slot& slot = slot_at(index);
  base::require(static_cast<SlotState>(slot.state.load()) == SlotState::kHeld, "a slot held by the trainer");
  if (has_ended(header().trainer)) return;
#ifdef COHORT_WITH_CUDA
  if (has_events()) {
    record_drained(index, stream, others);
    slot.drained_recorded.store(1);
  }
#endif
  set_state(slot, SlotState::kFree);
  post(shared().slots_free);
}

bool Subscriber::has_events() const {
  return header().device == DeviceKind::kCuda && !has_ended(header().sampler) &&
         header().sampler.failed_at_us.load() == 0;
}

void Subscriber::leave_rows([[maybe_unused]] int index, [[maybe_unused]] base::GpuStream stream) {
#ifdef COHORT_WITH_CUDA
  if (in_child() || has_ended(header().trainer) || !has_events()) return;
  const base::CurrentGpu gpu(ordinal_);
  rows_left_[static_cast<std::size_t>(index)].record(stream);
  slot_at(index).rows_left.store(1);
#endif
}

#ifdef COHORT_WITH_CUDA
void Subscriber::record_drained(int index, base::GpuStream stream, std::span<const base::GpuStream> others) {
  const base::CurrentGpu gpu(ordinal_);  // any thread may come here
  const base::Event& drained = drained_[static_cast<std::size_t>(index)];
  if (others.empty()) return drained.record(stream);
  if (!meeting_) meeting_.emplace();
  const auto reach = [this](base::GpuStream from) {
    meeting_->reached.record(from);
    meeting_->reached.wait_on(meeting_->stream);
  };
  reach(stream);
  std::ranges::for_each(others, reach);
  drained.record(meeting_->stream);
}
#endif

void Subscriber::throw_stopped() const {
  require_alive(header().sampler, "sampler");
  throw PeerLost({"the run", "to continue", "it has been stopped", ""});
}

void Subscriber::refuse_in_child() const {
  if (!in_child()) return;
  throw base::Error({folder_.string(), base::format("process {}, which opened it", process_),
                     base::format("process {}, forked from it", getpid()),
                     "make a loader in the process that reads it"});
}

void Subscriber::refuse_when_all_are_held() const {
  for (const Slot& slot : slots_of(header())) {
    if (static_cast<SlotState>(slot.state.load()) != SlotState::kHeld) return;
  }
  throw base::Error(
      {"batch views", "a slot to be given back", base::format("all {} slots held", header().num_slots),
       "x and edge_index of a batch are views of a shared slot, and views of earlier batches are still alive, by "
       "themselves or for a backward pass that has not run: keep batch.clone(), evaluate under torch.no_grad(), call "
       "backward() in each step, or raise num_slots"});
}

}  // namespace cohort::channel
