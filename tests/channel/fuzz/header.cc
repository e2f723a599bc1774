// A channel with damage. Byte 0, modulo 3: 0 takes the rest as the file; 1 and 2 write numbers over a good one, and 2
// also attaches as a trainer does and takes a batch. Divided by 3, odd: the good one is of two types. Semaphores
// stay whole: over a damaged one the C library itself ends the process.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "channel/inspect.h"
#include "channel/publisher.h"
#include "channel/subscriber.h"
#include "tests/dataset/temporary_folder.h"
#include "tests/fuzz/fuzz.h"

namespace cohort::fuzz {
namespace {

namespace fs = std::filesystem;

// A channel in which a batch is ready, as bytes, in a folder with the slot's file.
struct Good {
  explicit Good(bool has_types) {
    channel::ChannelOptions options;
    options.num_slots = 2;
    options.tables = {{4, 32, 0}};
    channel::SlotContents contents{.row_bytes = {16}};
    channel::Batch batch{};
    if (has_types) {
      options.tables.insert(options.tables.begin(), channel::Table{});
      options.target_types = {1, 0};
      options.edge_tables = {{3, 32, 0}};
      contents = {.row_bytes = {0, 16}, .edge_row_bytes = {12, 0}, .target_types = options.target_types};
    }
    channel::Publisher publisher(folder.path(), options);
    publisher.announce();
    batch.pass = 1;
    batch.num_nodes = batch.nodes[has_types ? 1 : 0].per_hop[0] = 3;
    batch.num_seeds = 1;
    batch.num_labels = has_types ? 0 : 3;
    const std::size_t bytes = channel::lay_out(contents, batch);
    const int slot = publisher.acquire(1).value();
    publisher.memory(slot, bytes, bytes);
    publisher.publish(slot, batch);
    publisher.stop_flag().store(1);  // nobody waits for more
    image = dataset::read_bytes(folder / "channel");
  }

  dataset::TemporaryFolder folder;
  std::string image;
};

Good& good(bool has_types) {
  static Good one(false), two(true);
  return has_types ? two : one;
}

// A number of 1 to 8 bytes somewhere in the file: 12 bytes of the input.
struct Damage {
  uint32_t at;
  uint8_t bytes;
  uint8_t value[7];
};
static_assert(sizeof(Damage) == 12);

std::string damaged(const Good& good, std::span<const std::byte> input) {
  std::string image = good.image;
  for (; input.size() >= sizeof(Damage); input = input.subspan(sizeof(Damage))) {
    Damage damage;
    std::memcpy(&damage, input.data(), sizeof damage);
    const std::size_t at = damage.at % image.size(), bytes = damage.bytes % sizeof damage.value + 1;
    std::memcpy(image.data() + at, damage.value, std::min(bytes, image.size() - at));
  }
  for (const std::size_t at :
       {offsetof(channel::ChannelHeader, requests_posted), offsetof(channel::ChannelHeader, requests_free),
        offsetof(channel::ChannelHeader, slots_free), offsetof(channel::ChannelHeader, batches_ready)}) {
    std::memcpy(image.data() + at, good.image.data() + at, sizeof(sem_t));
  }
  return image;
}

// Puts the bytes where the trainer looks, as a file of their own: what is mapped is not changed below its reader.
void put(const Good& good, const std::string& image) {
  const fs::path path = good.folder / "channel";
  fs::remove(path);
  dataset::write_bytes(path, image);
}

void look(const Good& good) {
  const base::Mapping file = channel::open_channel(good.folder.path(), base::Access::kReadOnly);
  channel::describe(*reinterpret_cast<const channel::ChannelHeader*>(file.data()));
}

void attach(const Good& good) {
  channel::Subscriber subscriber(good.folder.path());
  const channel::HeldBatch held = subscriber.next(1, 1, [] { return true; });
  if (held.slot < 0) return;
  const channel::Batch& batch = *held.batch;
  const auto last = std::max({batch.n_id_offset, batch.y_offset, batch.input_id_offset, batch.edge_index_offset});
  const uint64_t table = batch.nodes[subscriber.header().num_types - 1].x_offset;
  volatile std::byte first = held.data[0], byte = held.data[last], row = held.data[table];
  static_cast<void>(first), static_cast<void>(byte), static_cast<void>(row);
  subscriber.release(held.slot, nullptr);
}

Damage at_field(std::size_t offset, uint8_t value) { return {static_cast<uint32_t>(offset), 3, {value}}; }

}  // namespace

std::vector<std::string> seeds() {
  using channel::ChannelHeader;
  std::vector<std::string> all = {std::string(1, 0) + good(false).image.substr(0, 200), std::string(1, 2),
                                  std::string(1, 5)};
  const std::size_t slot = sizeof(ChannelHeader), batch = slot + offsetof(channel::Slot, batch);
  for (const std::size_t field :
       {offsetof(ChannelHeader, version), offsetof(ChannelHeader, num_slots), offsetof(ChannelHeader, device),
        offsetof(ChannelHeader, sampler), slot, slot + offsetof(channel::Slot, generation),
        slot + offsetof(channel::Slot, bytes), batch, batch + offsetof(channel::Batch, pass),
        batch + offsetof(channel::Batch, num_nodes), batch + offsetof(channel::Batch, n_id_offset),
        batch + offsetof(channel::Batch, nodes), batch + offsetof(channel::Batch, edges),
        offsetof(ChannelHeader, num_types), offsetof(ChannelHeader, target_types)}) {
    for (const char mode : {'\1', '\2', '\5'}) all.push_back(mode + bytes_of(at_field(field, 77)));
  }
  return all;
}

void run(std::span<const std::byte> input) {
  if (input.empty()) return;
  const int mode = std::to_integer<int>(input[0]) % 3;
  const Good& channel = good(std::to_integer<int>(input[0]) / 3 % 2 == 1);
  const auto rest = input.subspan(1);
  put(channel, mode == 0 ? text_of(rest) : damaged(channel, rest));
  try {
    look(channel);
    if (mode == 2) attach(channel);
  } catch (const base::Error&) {
  }
}

}  // namespace cohort::fuzz
