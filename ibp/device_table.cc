#include "base/cuda_check.h"
#include "base/format.h"
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

void check_size(const EncodedRef& ref) {
  if (ref.num_rows < int64_t{UINT32_MAX}) return;
  throw Error({"DeviceTable: rows", "fewer than 2^32 - 1", base::format("{}", ref.num_rows), "split the table"});
}

std::size_t bytes_side_by_side(const EncodedRef& ref) {
  return DeviceTable::overflow_at(ref) + static_cast<std::size_t>(ref.overflow_bytes);
}

// Where each part of a directory begins, in memory that has the rows before it.
struct DirectoryAt {
  std::size_t entries = 0, lengths = 0, flags = 0, ranks = 0, end = 0;
};
DirectoryAt directory_at(const EncodedRef& ref) {
  const auto rows = static_cast<std::size_t>(ref.num_rows), groups = (rows + 31) / 32;
  DirectoryAt at;
  at.end = bytes_side_by_side(ref);
  const auto next = [&at](const void* part, std::size_t bytes) {
    const std::size_t begin = round_up(at.end, std::size_t{kLineBytes});
    if (part) at.end = begin + bytes;
    return begin;
  };
  at.entries = next(ref.entries, rows * sizeof(*ref.entries));
  at.lengths = next(ref.lengths, rows * sizeof(*ref.lengths));
  at.flags = next(ref.flags, groups * sizeof(*ref.flags));
  at.ranks = next(ref.ranks, groups * sizeof(*ref.ranks));
  return at;
}

// The directory that lies behind the rows.
EncodedRef with_directory_at(EncodedRef ref, const std::byte* rows) {
  const DirectoryAt at = directory_at(ref);
  const auto look = [rows]<typename T>(const T*& part, std::size_t begin) {
    if (part) part = reinterpret_cast<const T*>(rows + begin);
  };
  look(ref.entries, at.entries);
  look(ref.lengths, at.lengths);
  look(ref.flags, at.flags);
  look(ref.ranks, at.ranks);
  return ref;
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
  ref_.elements = copied(ref_.elements, std::size_t{1} << ref_.code_bits, tables_);
}

void DeviceTable::copy_directory(const EncodedRef& from) {
  const auto rows = static_cast<std::size_t>(from.num_rows);
  ref_ = from;
  ref_.entries = copied(from.entries, rows, of_rows_);
  ref_.lengths = copied(from.lengths, rows, of_rows_);
  ref_.flags = copied(from.flags, (rows + 31) / 32, flags_);
  ref_.ranks = copied(from.ranks, (rows + 31) / 32, ranks_);
}

void DeviceTable::copy_to_gpu(const EncodedRef& host) {
  const DirectoryAt at = directory_at(host);
  const char* const what = "allocate encoded rows";
  if (base::SharedGpuBytes::is_supported()) {
    shared_rows_ = base::SharedGpuBytes(at.end, what);
  } else {
    device_rows_ = base::DeviceBytes(at.end, what);
  }
  std::byte* const rows = shared_rows_.data() ? shared_rows_.data() : device_rows_.data();
  const auto copy = [rows](std::size_t to, const void* from, int64_t bytes) {
    if (from) base::copy_to_gpu(rows + to, from, static_cast<std::size_t>(bytes));
  };
  const int64_t num_groups = (host.num_rows + 31) / 32;
  copy(0, host.data, host.data_bytes);
  copy(plane_b_at(host), host.plane_b, host.plane_b_bytes());
  copy(overflow_at(host), host.overflow, host.overflow_bytes);
  copy(at.entries, host.entries, host.num_rows * int64_t{sizeof(*host.entries)});
  copy(at.lengths, host.lengths, host.num_rows * int64_t{sizeof(*host.lengths)});
  copy(at.flags, host.flags, num_groups * int64_t{sizeof(*host.flags)});
  copy(at.ranks, host.ranks, num_groups * int64_t{sizeof(*host.ranks)});
  ref_ = with_directory_at(host, rows);
  look_at(rows);
}

DeviceTable::DeviceTable(const EncodedRows& encoded, Place place) : profile_(encoded.profile) {
  check_size(encoded.ref);
  on_host_ = place == Place::kPinned;
  if (place == Place::kDevice) {
    copy_to_gpu(encoded.ref);
    return;
  }
  copy_directory(encoded.ref);
  if (place == Place::kStaged) {
    ref_.data = ref_.overflow = nullptr;  // of plane B the address stays, which says that there is one
  } else {
    host_rows_ = base::HostTable(bytes_side_by_side(encoded.ref));
    copy_side_by_side(encoded.ref, host_rows_.data());
    host_rows_.open_to_gpu();
    look_at(host_rows_.data());
  }
}

DeviceTable::DeviceTable(const Profile& profile, const EncodedRef& shape, const base::FileDescriptor& shared)
    : profile_(profile), shared_rows_(shared, directory_at(shape).end, "open the rows of another process") {
  copy_directory(with_directory_at(shape, shared_rows_.data()));
  look_at(shared_rows_.data());
}

base::FileDescriptor DeviceTable::share() const {
  return shared_rows_.data() ? shared_rows_.share() : base::FileDescriptor();
}

DeviceTable::DeviceTable(const EncodedRows& encoded) : profile_(encoded.profile), keepers_(encoded.keepers) {
  check_size(encoded.ref);
  copy_directory(encoded.ref);
  if (encoded.ref.num_rows == 0) return;
  const cudaMemoryType type = memory_at(encoded.ref.data);
  if (type == cudaMemoryTypeUnregistered) {
    throw Error({"DeviceTable: rows", "pinned host memory or GPU memory", "pageable host memory",
                 "pin them, or copy them with Place::kPinned"});
  }
  if (encoded.ref.plane_b && memory_at(encoded.ref.plane_b) != type) {
    throw Error({"DeviceTable: rows", "both planes in the same kind of memory",
                 "one in host memory and one in GPU memory", ""});
  }
  on_host_ = type != cudaMemoryTypeDevice;
  demand_multiple("DeviceTable: rows", encoded.ref.data, 16);
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

LocatedRows rows_of(const DeviceTable& table) {
  const EncodedRef& encoded = table.ref();
  LocatedRows rows;
  rows.regions = {RegionRef{encoded.data, encoded.data_bytes}, {encoded.overflow, encoded.overflow_bytes}};
  rows.plane_b = {encoded.plane_b, encoded.plane_b_bytes()};
  rows.step_bytes = step_of(encoded);
  rows.max_coded_bytes = longest_coded_bytes(encoded);
  return rows;
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
