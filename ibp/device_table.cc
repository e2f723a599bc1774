#include <fmt/format.h>

#include "base/check.h"
#include "base/parallel_copy.h"
#include "base/pinned_reservation.h"
#include "ibp/bits.h"
#include "ibp/gpu.h"
#include "ibp/row_codec.h"

namespace cohort::ibp {
namespace {

using base::cuda_check;
using base::Error;

void upload(void* to, const void* from, std::size_t bytes) {
  base::copy_in_pieces(to, from, bytes, nullptr, "copy a table to the GPU");
  cuda_check(cudaStreamSynchronize(nullptr), "copy a table to the GPU");
}

cudaMemoryType memory_at(const void* address) {
  cudaPointerAttributes attributes{};
  cuda_check(cudaPointerGetAttributes(&attributes, address), "ask where rows lie");
  return attributes.type;
}

// What kind of memory an address is; throws when this GPU cannot read it.
cudaMemoryType readable_memory_at(const void* address) {
  const cudaMemoryType type = memory_at(address);
  if (type == cudaMemoryTypeUnregistered) {
    throw Error({"DeviceTable: rows", "pinned host memory or GPU memory", "pageable host memory",
                 "pin them, or copy them with Place::kPinned"});
  }
  return type;
}

}  // namespace

DeviceProfile::DeviceProfile(const Profile& profile) {
  const ProfileTables tables((validate(profile), profile));
  const std::size_t bytes4 = tables.codes4().size() * sizeof(ChunkCode<uint32_t>);
  const std::size_t bytes8 = tables.codes8().size() * sizeof(ChunkCode<uint64_t>);
  const std::size_t bytes_add = tables.add().size() * sizeof(uint32_t);
  tables_ = base::DeviceBytes(bytes4 + bytes8 + bytes_add, "allocate a profile");
  ref_ = tables.ref();
  ref_.widths = nullptr;
  std::byte* to = tables_.data();  // a profile has one kind of table, so that each starts aligned
  upload(to, tables.codes4().data(), bytes4);
  upload(to, tables.codes8().data(), bytes8);
  upload(to, tables.add().data(), bytes_add);
  ref_.codes4 = reinterpret_cast<const ChunkCode<uint32_t>*>(to);
  ref_.codes8 = reinterpret_cast<const ChunkCode<uint64_t>*>(to);
  ref_.add = reinterpret_cast<const uint32_t*>(to);
}

// Entries or lengths or flags and ranks: each at a multiple of 256 bytes of one allocation.
void DeviceTable::copy_directory(const EncodedRef& host) {
  if (host.num_rows >= int64_t{UINT32_MAX}) {
    throw Error({"DeviceTable: rows", "fewer than 2^32 - 1", fmt::format("{}", host.num_rows), "split the table"});
  }
  const auto rows = static_cast<std::size_t>(host.num_rows);
  const std::size_t words = (rows + 31) / 32;
  const std::size_t flag_bytes = round_up(words * 4, 256);
  const std::size_t row_bytes = host.entries ? rows * 8 : host.lengths ? rows * 2 : 0;
  directory_ = base::DeviceBytes(row_bytes + 2 * flag_bytes, "allocate a directory");
  std::byte* at = directory_.data() + 2 * flag_bytes;
  if (host.entries) upload(at, host.entries, row_bytes);
  if (host.lengths) upload(at, host.lengths, row_bytes);
  if (host.flags) upload(directory_.data(), host.flags, words * 4);
  if (host.ranks) upload(directory_.data() + flag_bytes, host.ranks, words * 4);
  ref_ = host;
  ref_.entries = host.entries ? reinterpret_cast<const uint64_t*>(at) : nullptr;
  ref_.lengths = host.lengths ? reinterpret_cast<const uint16_t*>(at) : nullptr;
  ref_.flags = host.flags ? reinterpret_cast<const uint32_t*>(directory_.data()) : nullptr;
  ref_.ranks = host.ranks ? reinterpret_cast<const uint32_t*>(directory_.data() + flag_bytes) : nullptr;
}

DeviceTable::DeviceTable(const EncodedRows& encoded, Place place) : profile_(encoded.profile) {
  copy_directory(encoded.ref);
  const auto data_bytes = static_cast<std::size_t>(encoded.ref.data_bytes);
  const auto overflow_bytes = static_cast<std::size_t>(encoded.ref.overflow_bytes);
  const std::size_t overflow_at = round_up(data_bytes, 128);
  std::byte* rows = nullptr;
  if (place == Place::kPinned) {
    host_rows_ = base::HostTable(overflow_at + overflow_bytes);
    rows = host_rows_.data();
    base::parallel_copy(rows, encoded.ref.data, data_bytes);
    base::parallel_copy(rows + overflow_at, encoded.ref.overflow, overflow_bytes);
    host_rows_.open_to_gpu();
  } else {
    device_rows_ = base::DeviceBytes(overflow_at + overflow_bytes, "allocate encoded rows");
    rows = device_rows_.data();
    upload(rows, encoded.ref.data, data_bytes);
    upload(rows + overflow_at, encoded.ref.overflow, overflow_bytes);
  }
  ref_.data = rows;
  ref_.overflow = rows + overflow_at;
  on_host_ = place == Place::kPinned;
}

DeviceTable::DeviceTable(const EncodedRows& encoded) : profile_(encoded.profile), keepers_(encoded.keepers) {
  copy_directory(encoded.ref);
  if (encoded.ref.num_rows == 0) return;
  on_host_ = readable_memory_at(encoded.ref.data) != cudaMemoryTypeDevice;
  if (reinterpret_cast<uintptr_t>(encoded.ref.data) % 16 != 0) {
    throw Error({"DeviceTable: rows", "an address that is a multiple of 16", "another", ""});
  }
  if (encoded.ref.overflow_bytes == 0 || memory_at(encoded.ref.overflow) != cudaMemoryTypeUnregistered) return;
  device_rows_ = base::DeviceBytes(static_cast<std::size_t>(encoded.ref.overflow_bytes), "allocate overflow rows");
  upload(device_rows_.data(), encoded.ref.overflow, device_rows_.bytes());
  ref_.overflow = device_rows_.data();
}

}  // namespace cohort::ibp
