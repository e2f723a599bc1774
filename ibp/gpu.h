// The CUDA side of the API: encoded rows a GPU can reach, and fetching from them. Part of ibp.h.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "base/file_descriptor.h"
#include "base/host_table.h"
#include "base/owners.h"
#include "base/shared_gpu_bytes.h"
#include "ibp/ibp.h"

namespace cohort::ibp {

// A profile's tables in GPU memory.
class DeviceProfile {
 public:
  explicit DeviceProfile(const Profile& profile);
  const ProfileRef& ref() const { return ref_; }  // for kernels

 private:
  base::DeviceBytes tables_;
  ProfileRef ref_;
};

enum class Place : uint8_t {
  kPinned,
  kDevice,
  kStaged,  // nowhere yet: look_at() says where, before each fetch
};

// Encoded rows for the current GPU: directory and profile in its memory, the rows themselves pinned in host memory or
// in GPU memory.
class DeviceTable {
 public:
  // Copies the rows to `place`.
  DeviceTable(const EncodedRows& encoded, Place place);
  // Leaves the rows where they are: pinned host memory, this GPU's or a peer's with access enabled. Throws Error when
  // this GPU cannot read them.
  explicit DeviceTable(const EncodedRows& encoded);
  // Rows that another process shares, which has them at Place::kDevice, in the memory of this GPU or of a peer; `shape`
  // is ref() there. Copies the directory.
  DeviceTable(const Profile& profile, const EncodedRef& shape, const base::FileDescriptor& shared);
  // Rows whose directory is in GPU memory, too. The caller keeps both.
  DeviceTable(const Profile& profile, const EncodedRef& ref, bool on_host)
      : profile_(profile), ref_(ref), on_host_(on_host) {}

  // Takes rows to be at `rows` in this GPU's memory, at a multiple of 128 bytes: first the rows in their layout, from
  // plane_b_at() on plane B, from overflow_at() on those of the overflow area. Kernels that were started before read
  // where rows were.
  void look_at(const std::byte* rows);
  static std::size_t plane_b_at(const EncodedRef& ref);
  static std::size_t overflow_at(const EncodedRef& ref);

  // For another process, which opens it; empty: not at Place::kDevice, without rows, or this GPU cannot share memory.
  base::FileDescriptor share() const;

  const EncodedRef& ref() const { return ref_; }  // for kernels
  const DeviceProfile& profile() const { return profile_; }
  bool on_host() const { return on_host_; }

 private:
  void copy_directory(const EncodedRef& from);
  void copy_to_gpu(const EncodedRef& host);
  DeviceProfile profile_;
  base::DeviceBytes of_rows_, flags_, ranks_;  // the directory: entries or lengths, or flags and ranks
  base::DeviceBytes device_rows_;
  base::SharedGpuBytes shared_rows_;
  base::HostTable host_rows_;
  std::vector<Keeper> keepers_;
  EncodedRef ref_;
  bool on_host_ = false;
};

struct FetchOptions {
  int max_sms = 0;  // blocks of the persistent grid; 0: all SMs
  // Puts rows in host memory in the order of their addresses: 2 to 4 times faster from large tables, unless the index
  // ascends.
  bool by_address = true;
  bool bulk = true;       // bulk copies where the GPU has them (sm_90 and later), else 16-byte cp.async
  bool check = false;     // wait for the rows and raise their error now
  bool plane_a = false;   // codec planes: plane A alone
  bool bfloat16 = false;  // of plane A alone: `out` is uint16 [count, num_columns], as fetch_bfloat16() writes it
};

// The different ones of some ids, which find_distinct() of ibp/uses/bags.h found, in the memory of its caller.
struct DistinctRef {
  uint64_t* entries = nullptr;          // uint64 [*count], by ascending id
  unsigned long long* count = nullptr;  // uint64 [1] in GPU memory
  uint32_t* next = nullptr;             // as LocatedRows has it
};

struct LocatedRows;

// Fetches rows: allocates once, for up to `max_rows` a call. Calls on one Gather must be ordered by the caller (one
// stream, or events); different Gathers are independent.
class Gather {
 public:
  explicit Gather(int64_t max_rows);
  ~Gather();
  Gather(const Gather&) = delete;
  Gather& operator=(const Gather&) = delete;

  // out[i] = row index[i]; index: int64 [count] and out: [count, row_bytes] in GPU memory, out 16-byte aligned.
  // Asynchronous, allocates nothing, may be captured in a CUDA graph. A bad index or a damaged row gives a row of zeros
  // and an Error from the next call or check(). Throws Error for options that do not fit the table.
  void fetch(const DeviceTable& table, const int64_t* index, int64_t count, void* out, cudaStream_t stream,
             const FetchOptions& options = {});
  // The same for rows that find_distinct() found: out[i] is the i-th distinct row. There may be any number of them.
  void fetch_distinct(const DeviceTable& table, const DistinctRef& found, void* out, cudaStream_t stream);
  // Raises the error of the fetches that have ended, if any, and forgets it.
  void check();
  int64_t max_rows() const { return max_rows_; }

 private:
  void fetch_rows(const DeviceTable& table, const LocatedRows& rows, void* out, cudaStream_t stream,
                  const FetchOptions& options);
  struct Scratch;
  int64_t max_rows_;
  std::unique_ptr<Scratch> scratch_;
};

// Encoded rows in page-locked host memory that are all copied to GPU memory before they are decoded there: a copy takes
// no SM, and moves more bytes a second than kernels that read host memory.
class StreamedRows {
 public:
  explicit StreamedRows(const EncodedRows& encoded);
  std::size_t staging_bytes() const { return host_.bytes(); }
  // Copies the encoded rows to `staging`, at a multiple of 128 bytes. Asynchronous.
  void copy(std::byte* staging, cudaStream_t stream) const;
  // Decodes all rows from `staging` to `out`, as Gather::fetch does; `all`: int64 [num_rows], 0, 1, ..., in GPU memory.
  void decode(Gather& gather, const std::byte* staging, const int64_t* all, void* out, cudaStream_t stream,
              const FetchOptions& options = {});

 private:
  DeviceTable table_;
  base::PinnedBytes host_;
};

// Encoded rows that the current GPU replaces, in its memory or in pinned host memory: what WritableRows is on the host.
// Allocates once. The overflow area has room for the rows that are in it and for `spare_rows` more. Calls, and fetches
// from table(), must be ordered by the caller (one stream, or events).
class DeviceWritableRows {
 public:
  // A copy of `rows`, which are in host memory.
  DeviceWritableRows(const EncodedRows& rows, Place place, int64_t spare_rows);
  // Rows of zeros, with `slot_bytes` each, a multiple of 4; of 16 is faster.
  DeviceWritableRows(const Profile& profile, int64_t num_rows, uint32_t slot_bytes, Place place, int64_t spare_rows);
  ~DeviceWritableRows();
  DeviceWritableRows(const DeviceWritableRows&) = delete;
  DeviceWritableRows& operator=(const DeviceWritableRows&) = delete;

  // Row ids[i] becomes rows[i]; ids: int64 [count] and rows: [count, row_bytes], at a multiple of an element, in GPU
  // memory. Asynchronous, allocates nothing, may be captured in a CUDA graph. If an id is outside 0..num_rows-1, or
  // occurs twice, nothing changes. A row for which the overflow area has no room keeps its value. The next call or
  // check() raises the Error. options: max_sms and check.
  void put(const int64_t* ids, const void* rows, int64_t count, cudaStream_t stream, const FetchOptions& options = {});
  // Raises the error of the puts that have ended, if any, and forgets it.
  void check();

  const DeviceTable& table() const;
  const Profile& profile() const;
  int64_t stored_bytes() const;  // all that was allocated for rows
  int64_t room_left() const;     // rows that the overflow area still has room for, after the puts that have ended
  EncodedRows to_host() const;   // a copy; waits for the GPU

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Rows that the caller has located itself, by a directory of its own: entries, in GPU memory, of rows in any regions.
struct LocatedRows {
  const uint64_t* entries = nullptr;          // uint64 [*count]: make_entry(), the region
  const int32_t* positions = nullptr;         // int32 [*count]: rows of `out`; null: 0, 1, ...
  const unsigned long long* count = nullptr;  // uint64 [1] in GPU memory
  uint32_t* next = nullptr;                   // uint32 [1], 0 before the fetch: hands rows out in order; null: no order
  std::array<RegionRef, kMaxRegions> regions;
  // Codec planes: entries are of plane A. Plane B of the row whose plane A is slot i of region 0 is the i-th here;
  // null: plane B of each row lies right behind its plane A.
  RegionRef plane_b;
  uint32_t step_bytes = 4;       // every row begins at a multiple of this
  uint32_t max_coded_bytes = 0;  // of the longest row that is not raw; 0: unknown
  bool on_gpu = false;           // all of them: rows of a raw profile, whole ones, then take fewer SMs
};

// Where the rows of `table` lie, for entries of entry_of(): all but entries, positions, count and next.
LocatedRows rows_of(const DeviceTable& table);

inline constexpr unsigned long long kNoFetchError = ~0ull;

// out[positions[i]] = the row of entries[i]. Asynchronous, allocates nothing. A damaged row gives a row of zeros and
// makes `status` (uint64 [1] in GPU memory, kNoFetchError before) the least 2 * position + 1 of such rows.
// options.plane_a and, with it, bfloat16 have a meaning for codec planes alone. `options.by_address` and
// `options.check` have no meaning here.
void fetch_located(const DeviceProfile& profile, const LocatedRows& rows, void* out, unsigned long long* status,
                   cudaStream_t stream, const FetchOptions& options = {});

// ---- Rows as they are stored, from GPU to GPU: take() of ibp.h -----------------------------------------------------

inline constexpr uint32_t kStoredStep = 16;  // every row begins at a multiple of this

struct StoredRef {
  uint64_t* entries = nullptr;  // uint64 [count]: make_entry() of rows in `data`
  std::byte* data = nullptr;    // at a multiple of 16 bytes
};

// sizes[i]: the bytes that row index[i] takes in the `data` of take_stored(), a multiple of kStoredStep; 0 of an index
// outside the table. index, sizes: int64 [count] in GPU memory. Asynchronous, allocates nothing.
void stored_sizes(const DeviceTable& table, const int64_t* index, int64_t count, int64_t* sizes, cudaStream_t stream);
// Copies these rows as they are stored, one after the other: row i ends at byte ends[i], the sum of sizes[0..i], int64
// [count] in GPU memory. fetch_located() decodes them. An index outside the table has an entry without bytes, which
// fetch_located() takes for a damaged row. Asynchronous, allocates nothing.
void take_stored(const DeviceTable& table, const int64_t* index, int64_t count, const int64_t* ends,
                 const StoredRef& out, cudaStream_t stream);

// encode() by the current GPU: the same bytes. `rows.data` lies in GPU, pinned or pageable memory (20 GB/s and more
// want it pinned). The rows of the result are in `out`, 16-byte aligned host memory of the caller's with data_bound()
// bytes or as many as they come to; without it in page-locked memory of data_bound() bytes. Waits for the GPU.
EncodedRows encode_gpu(const RowTable& rows, const Profile& profile, const EncodeOptions& options = {},
                       std::span<std::byte> out = {});

}  // namespace cohort::ibp
