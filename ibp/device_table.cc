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
  to = base::DeviceBytes(count * sizeof(T), "allocate the index and the decoding tables of the rows");
  base::copy_to_gpu(to.data(), from, to.bytes());
  return reinterpret_cast<const T*>(to.data());
}

std::size_t bytes_side_by_side(const EncodedRef& ref) {
  return DeviceTable::overflow_at(ref) + static_cast<std::size_t>(ref.overflow_bytes);
}

// The rows in host memory to other host memory, as DeviceTable::look_at() wants them.
void copy_side_by_side(const EncodedRef& from, std::byte* to) {
  base::parallel_copy(to, from.data, static_cast<std::size_t>(from.data_bytes));
  if (from.plane_b) {
    base::parallel_copy(to + DeviceTable::plane_b_at(from), from.plane_b,
                        static_cast<std::size_t>(from.plane_b_bytes()));
  }
  base::parallel_copy(to + DeviceTable::overflow_at(from), from.overflow,
                      static_cast<std::size_t>(from.overflow_bytes));
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
  const std::size_t bytes = bytes_side_by_side(encoded.ref);
  on_host_ = place == Place::kPinned;
  if (place == Place::kStaged) {
    ref_.data = ref_.overflow = nullptr;  // of plane B the address stays, which says that there is one
  } else if (place == Place::kPinned) {
    host_rows_ = base::HostTable(bytes);
    copy_side_by_side(encoded.ref, host_rows_.data());
    host_rows_.open_to_gpu();
    look_at(host_rows_.data());
  } else {
    device_rows_ = base::DeviceBytes(bytes, "allocate encoded rows");
    std::byte* const rows = device_rows_.data();
    base::copy_to_gpu(rows, encoded.ref.data, static_cast<std::size_t>(encoded.ref.data_bytes));
    if (encoded.ref.plane_b) {
      base::copy_to_gpu(rows + plane_b_at(encoded.ref), encoded.ref.plane_b,
                        static_cast<std::size_t>(encoded.ref.plane_b_bytes()));
    }
    base::copy_to_gpu(rows + overflow_at(encoded.ref), encoded.ref.overflow,
                      static_cast<std::size_t>(encoded.ref.overflow_bytes));
    look_at(rows);
  }
}

DeviceTable::DeviceTable(const EncodedRows& encoded) : profile_(encoded.profile), keepers_(encoded.keepers) {
  copy_directory(encoded.ref);
  if (encoded.ref.num_rows == 0) return;
  const cudaMemoryType type = memory_at(encoded.ref.data);
  if (type == cudaMemoryTypeUnregistered) {
    throw Error({"DeviceTable: rows", "pinned host memory or GPU memory", "pageable host memory",
                 "pin them, or copy them with Place::kPinned"});
  }
  if (encoded.ref.plane_b && memory_at(encoded.ref.plane_b) != type) {
    throw Error({"DeviceTable: rows", "both planes in one kind of memory", "two kinds", ""});
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

std::size_t DeviceTable::plane_b_at(const EncodedRef& ref) {
  return round_up(static_cast<std::size_t>(ref.data_bytes), kLineBytes);
}

std::size_t DeviceTable::overflow_at(const EncodedRef& ref) {
  const int64_t plane_b_bytes = ref.plane_b ? ref.plane_b_bytes() : 0;
  return plane_b_at(ref) + round_up(static_cast<std::size_t>(plane_b_bytes), kLineBytes);
}

void DeviceTable::look_at(const std::byte* rows) {
  ref_.data = rows;
  if (ref_.plane_b) ref_.plane_b = rows + plane_b_at(ref_);
  ref_.overflow = rows + overflow_at(ref_);
}

StreamedRows::StreamedRows(const EncodedRows& encoded)
    : table_(encoded, Place::kStaged), host_(bytes_side_by_side(encoded.ref)) {
  copy_side_by_side(encoded.ref, host_.data());
}

void StreamedRows::copy(std::byte* staging, cudaStream_t stream) const {
  if (host_.bytes() == 0) return;
  cuda_check(cudaMemcpyAsync(staging, host_.data(), host_.bytes(), cudaMemcpyHostToDevice, stream),
             "copy encoded rows to the GPU");
}

void StreamedRows::decode(Gather& gather, const std::byte* staging, const int64_t* all, void* out, cudaStream_t stream,
                          const FetchOptions& options) {
  table_.look_at(staging);
  gather.fetch(table_, all, table_.ref().num_rows, out, stream, options);
}

}  // namespace cohort::ibp
