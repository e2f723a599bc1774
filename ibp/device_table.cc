#include <fmt/format.h>

#include "base/check.h"
#include "base/parallel_copy.h"
#include "ibp/bits.h"
#include "ibp/gpu.h"
#include "ibp/row_codec.h"

namespace cohort::ibp {
namespace {

using base::cuda_check;
using base::Error;

cudaMemoryType memory_at(const void* address) {
  cudaPointerAttributes attributes{};
  cuda_check(cudaPointerGetAttributes(&attributes, address), "ask where rows lie");
  return attributes.type;
}

// A copy in GPU memory, which `to` owns; null of nothing.
template <typename T>
const T* copied(const T* from, std::size_t count, base::DeviceBytes& to) {
  if (!from) return nullptr;
  to = base::DeviceBytes(count * sizeof(T), "allocate what finds and decodes rows");
  base::copy_to_gpu(to.data(), from, to.bytes());
  return reinterpret_cast<const T*>(to.data());
}

}  // namespace

DeviceProfile::DeviceProfile(const Profile& profile) {
  const ProfileTables tables((validate(profile), profile));
  ref_ = tables.ref();
  ref_.widths = nullptr;
  // A profile has one kind of table.
  ref_.codes4 = copied(tables.codes4().data(), tables.codes4().size(), tables_);
  ref_.codes8 = copied(tables.codes8().data(), tables.codes8().size(), tables_);
  ref_.add = copied(tables.add().data(), tables.add().size(), tables_);
}

void DeviceTable::copy_directory(const EncodedRef& host) {
  if (host.num_rows >= int64_t{UINT32_MAX}) {
    throw Error({"DeviceTable: rows", "fewer than 2^32 - 1", fmt::format("{}", host.num_rows), "split the table"});
  }
  const auto rows = static_cast<std::size_t>(host.num_rows);
  ref_ = host;
  ref_.entries = copied(host.entries, rows, of_rows_);
  ref_.lengths = copied(host.lengths, rows, of_rows_);
  ref_.flags = copied(host.flags, (rows + 31) / 32, flags_);
  ref_.ranks = copied(host.ranks, (rows + 31) / 32, ranks_);
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
    base::copy_to_gpu(rows, encoded.ref.data, data_bytes);
    base::copy_to_gpu(rows + overflow_at, encoded.ref.overflow, overflow_bytes);
  }
  ref_.data = rows;
  ref_.overflow = rows + overflow_at;
  on_host_ = place == Place::kPinned;
}

DeviceTable::DeviceTable(const EncodedRows& encoded) : profile_(encoded.profile), keepers_(encoded.keepers) {
  copy_directory(encoded.ref);
  if (encoded.ref.num_rows == 0) return;
  const cudaMemoryType type = memory_at(encoded.ref.data);
  if (type == cudaMemoryTypeUnregistered) {
    throw Error({"DeviceTable: rows", "pinned host memory or GPU memory", "pageable host memory",
                 "pin them, or copy them with Place::kPinned"});
  }
  on_host_ = type != cudaMemoryTypeDevice;
  if (reinterpret_cast<uintptr_t>(encoded.ref.data) % 16 != 0) {
    throw Error({"DeviceTable: rows", "an address that is a multiple of 16", "another", ""});
  }
  if (encoded.ref.overflow_bytes == 0 || memory_at(encoded.ref.overflow) != cudaMemoryTypeUnregistered) return;
  device_rows_ = base::DeviceBytes(static_cast<std::size_t>(encoded.ref.overflow_bytes), "allocate overflow rows");
  base::copy_to_gpu(device_rows_.data(), encoded.ref.overflow, device_rows_.bytes());
  ref_.overflow = device_rows_.data();
}

}  // namespace cohort::ibp
