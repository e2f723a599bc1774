#include "channel/publisher.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/format.h"

#ifdef COHORT_WITH_CUDA
#include "base/shared_gpu_bytes.h"
#endif

namespace cohort::channel {
namespace {

void init_semaphore(sem_t& semaphore, unsigned value) {
  if (sem_init(&semaphore, 1, value) != 0) base::fail_errno("sem_init", "a process-shared semaphore", errno);
}

// What is known before the backends are made. The order does not matter: the trainer finds no file before announce().
void fill_header(ChannelHeader& header, const ChannelOptions& options) {
  header.version = kVersion;
  header.header_bytes = sizeof(ChannelHeader);
  header.device = options.device;
  std::memcpy(header.gpu_uuid, options.gpu_uuid, sizeof header.gpu_uuid);
  header.num_slots = options.num_slots;
  header.label_dtype = options.label_dtype;
  header.label_width = options.label_width;
  header.with_e_id = options.with_e_id ? 1 : 0;
  header.with_edge_weight = options.with_edge_weight ? 1 : 0;
  header.num_types = static_cast<int32_t>(options.tables.size());
  header.num_relations = static_cast<int32_t>(options.target_types.size());
  header.label_type = options.label_type;
  std::ranges::copy(options.tables, header.tables);
  std::ranges::copy(options.edge_tables, header.edge_tables);
  std::ranges::copy(options.target_types, header.target_types);
  init_semaphore(header.requests_posted, 0);
  init_semaphore(header.requests_free, kMaxRequests);
  init_semaphore(header.slots_free, static_cast<unsigned>(options.num_slots));
  init_semaphore(header.batches_ready, 0);
  header.magic = kMagic;
}

}  // namespace

Publisher::Publisher(std::filesystem::path folder, const ChannelOptions& options)
    : folder_(std::move(folder)), owner_{options.owner_pid, base::process_with_pid(options.owner_pid).start_time} {
  if (options.num_slots < 2 || options.num_slots > kMaxSlots) {
    throw base::Error({"--slots", base::format("2 to {}", kMaxSlots), std::to_string(options.num_slots),
                       "3 is enough unless batches take very different times"});
  }
  const auto is_count = [](std::size_t count, std::size_t most) { return count >= 1 && count <= most; };
  base::require(is_count(options.tables.size(), kMaxTypes) && is_count(options.target_types.size(), kMaxRelations) &&
                    options.edge_tables.size() <= options.target_types.size(),
                "a data set with at most kMaxTypes and kMaxRelations");
  file_ = create_shared_file(folder_ / "channel.tmp", channel_bytes(options.num_slots));
  new (file_.data()) ChannelHeader{};
  enter(header().sampler);
  fill_header(header(), options);
  for (Slot& slot : slots()) new (&slot) Slot{};
  if (options.device == DeviceKind::kCpu) {
    memory_ = make_host_slot_owner(folder_, options.num_slots);
    return;
  }
#ifdef COHORT_WITH_CUDA
  memory_ = make_cuda_slot_owner(folder_, options.num_slots);
  for (int i = 0; i < options.num_slots; ++i) {
    const auto share = [](std::vector<base::Event>& events, unsigned char(&to)[64]) {
      events.emplace_back(cudaEventDisableTiming | cudaEventInterprocess);
      const cudaIpcEventHandle_t handle = events.back().ipc_handle();
      static_assert(sizeof handle == sizeof to);
      std::memcpy(to, &handle, sizeof handle);
    };
    share(drained_, slot_at(i).drained_handle);
    share(rows_left_, slot_at(i).rows_left_handle);
  }
#else
  throw base::Error({"device", "cpu", "cuda", "this build has no CUDA backend"});
#endif
}

Publisher::~Publisher() = default;

void Publisher::name_rows(RowsIn in, const std::vector<RowsOfType>& types) {
  base::require(types.size() <= kMaxTypes, "rows of at most kMaxTypes");
  header().rows_in = in;
  for (std::size_t type = 0; type < types.size(); ++type) {
    header().rows[type].num_rows = types[type].num_rows;
    header().rows[type].stride_bytes = types[type].stride_bytes;
  }
}

void Publisher::share_rows([[maybe_unused]] std::size_t type, [[maybe_unused]] const base::SharedGpuBytes& piece) {
#ifdef COHORT_WITH_CUDA
  NamedRows& rows = header().rows[type];
  const uint32_t number = rows.num_pieces.load();
  base::require(number < kMaxRowPieces, "at most kMaxRowPieces of the memory of rows");
  rows.piece_bytes[number] = piece.bytes();
  memory_->share_rows(type, number, piece);
  rows.num_pieces.store(number + 1, std::memory_order_release);
#endif
}

void Publisher::announce() {
  set_stage(Stage::kIdle);
  std::filesystem::rename(folder_ / "channel.tmp", folder_ / "channel");
}

std::optional<Request> Publisher::next_request() {
  if (header().stop.load()) return std::nullopt;
  set_stage(Stage::kIdle);
  // Before the trainer is there, nobody else tells; later the owner may have ended before the trainers of other ranks.
  const auto give_up = [this] {
    memory_->hand_over();
    return header().trainer.pid.load() == 0 && owner_gone();
  };
  if (!wait_for(header().requests_posted, header().stop, header().trainer, "trainer", give_up)) return std::nullopt;
  const Request request = header().requests[next_request_ % kMaxRequests];
  ++next_request_;
  post(header().requests_free);
  set_stage(Stage::kSampling, next_sequence_);  // the seeds come first: reading them may take long
  return request;
}

bool Publisher::has_request() {
  int posted = 0;
  return sem_getvalue(&header().requests_posted, &posted) == 0 && posted > 0;
}

std::optional<int> Publisher::acquire(uint64_t pass) {
  if (given_up(pass)) return std::nullopt;  // a busy run would never come to wait
  set_stage(Stage::kWaitSlot, next_sequence_);
  const auto give_up = [this, pass] {
    memory_->hand_over();
    return given_up(pass);
  };
  if (!wait_for(header().slots_free, header().stop, header().trainer, "trainer", give_up)) return std::nullopt;
  return take_oldest();
}

bool Publisher::is_over() const {
  if (header().stop.load() || static_cast<Stage>(header().trainer.stage.load()) == Stage::kEnded) return true;
  require_alive(header().trainer, "trainer");
  return false;
}

bool Publisher::trainer_died() const {
  const Party& trainer = header().trainer;
  const base::ProcessId id{trainer.pid.load(), trainer.start_time.load()};
  return id.pid != 0 && static_cast<Stage>(trainer.stage.load()) != Stage::kEnded && !base::is_alive(id);
}

std::optional<int> Publisher::try_acquire(uint64_t pass) {
  if (given_up(pass) || sem_trywait(&header().slots_free) != 0) return std::nullopt;
  return take_oldest();
}

// After slots_free has been waited for.
int Publisher::take_oldest() {
  std::optional<int> oldest;
  for (int i = 0; i < header().num_slots; ++i) {
    const Slot& slot = slot_at(i);
    if (static_cast<SlotState>(slot.state.load(std::memory_order_acquire)) != SlotState::kFree) continue;
    if (!oldest || slot.batch.sequence < slot_at(*oldest).batch.sequence) oldest = i;
  }
  base::require(oldest.has_value(), "a free slot for every post of slots_free");
  set_state(slot_at(*oldest), SlotState::kFilling);
  return *oldest;
}

std::byte* Publisher::memory(int slot, std::size_t needed_bytes, std::size_t preferred_bytes) {
  Slot& shared = slot_at(slot);
  base::require(static_cast<SlotState>(shared.state.load()) == SlotState::kFilling, "a slot held by the sampler");
  if (shared.bytes < needed_bytes) memory_->grow(shared, slot, needed_bytes, preferred_bytes);
  return memory_->data(slot);
}

void Publisher::wait_drained([[maybe_unused]] int slot, [[maybe_unused]] base::GpuStream stream) {
#ifdef COHORT_WITH_CUDA
  if (slot_at(slot).drained_recorded.exchange(0) == 1) {
    drained_[static_cast<std::size_t>(slot)].wait_on(stream);
  }
#endif
}

uint64_t Publisher::oldest_in_use(int slot) const {
  uint64_t oldest = next_sequence_;
  for (int i = 0; i < header().num_slots; ++i) {
    const Slot& other = slot_at(i);
    const auto state = static_cast<SlotState>(other.state.load(std::memory_order_acquire));
    if (i == slot || other.generation == 0 || state == SlotState::kFilling) continue;
    if (!leaves_rows(i, state == SlotState::kFree)) oldest = std::min(oldest, other.batch.sequence);
  }
  return oldest;
}

bool Publisher::any_ready() const {
  return std::ranges::any_of(slots(), [](const Slot& slot) {
    return static_cast<SlotState>(slot.state.load(std::memory_order_acquire)) == SlotState::kReady;
  });
}

bool Publisher::leaves_rows([[maybe_unused]] int slot, bool is_free) const {
#ifdef COHORT_WITH_CUDA
  const Slot& shared = slot_at(slot);
  const auto number = static_cast<std::size_t>(slot);
  if (shared.rows_left.load() == 1) return rows_left_[number].done();
  if (shared.drained_recorded.load() == 1) return is_free && drained_[number].done();
#endif
  return is_free;
}

void Publisher::publish(int slot, const Batch& batch) {
  Slot& shared = slot_at(slot);
  base::require(static_cast<SlotState>(shared.state.load()) == SlotState::kFilling, "a slot held by the sampler");
  const auto num_relations = static_cast<std::size_t>(header().num_relations);
  std::memcpy(&shared.batch, &batch, offsetof(Batch, edges) + num_relations * sizeof(BatchEdges));
  shared.rows_left.store(0);
  shared.batch.sequence = next_sequence_++;
  set_state(shared, SlotState::kReady);
  post(header().batches_ready);
}

}  // namespace cohort::channel
