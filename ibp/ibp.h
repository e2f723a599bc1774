// Lossless, random-access compression of feature rows: the whole public API, from simplest to most able.
//
//   RowTable rows{data, num_rows, Dtype::kFloat32, 128};
//   Profile profile = fit(rows).profile;             // 1. look at a sample, choose a codec
//   EncodedRows encoded = encode(rows, profile);     // 2. encode every row
//   fetch(encoded, index, out);                      // 3. any rows, decoded bit for bit
//   save(encoded, "rows.ibp"); load("rows.ibp");     // 4. keep them; a damaged file is an error, never a wrong row
//
// With a GPU: DeviceTable + Gather (gpu.h) fetch from pinned host, peer or local GPU memory. FORMAT.md describes every
// bit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/uninitialized_vector.h"
#include "ibp/encoded_ref.h"
#include "ibp/profile_ref.h"

namespace cohort::ibp {

inline constexpr uint32_t kMaxRowBytes = 65536;
inline constexpr uint32_t kLineBytes = 128;  // the most that one request over the link moves

uint32_t element_bytes(Dtype dtype);
uint32_t exponent_bits(Dtype dtype);  // 0: no float
bool can_have_layers(Dtype dtype);    // codec layers is for floats of 16 bits
std::string name_of(Dtype dtype);
std::string name_of(Codec codec);
std::string name_of(Layout layout);
Codec codec_named(const std::string& name);  // throws Error
uint32_t format_version(Codec codec);        // of its profiles and files

// ---- 1. Rows and profiles ------------------------------------------------------------------------------------------

// Plain rows, C-contiguous: dtype [num_rows, num_columns]. The memory stays the caller's.
struct RowTable {
  const void* data = nullptr;
  int64_t num_rows = 0;
  Dtype dtype = Dtype::kFloat32;
  uint32_t num_columns = 0;

  uint32_t row_bytes() const { return num_columns * element_bytes(dtype); }
  const std::byte* row(int64_t i) const { return static_cast<const std::byte*>(data) + i * int64_t{row_bytes()}; }
};

// What the rows of a table have in common, and so need not be stored in each.
struct Profile {
  Codec codec = Codec::kRaw;
  Dtype dtype = Dtype::kFloat32;
  uint32_t num_columns = 0;
  uint32_t slot_bytes = 0;  // recommended slot stride, a multiple of 16; 0: pack
  // invariant
  uint32_t chunk_bytes = 0;        // 4 or 8
  uint32_t threshold_percent = 0;  // the share of rows that had to agree
  std::vector<uint64_t> mask;      // uint64 [num_chunks]: 1 = invariant bit
  std::vector<uint64_t> value;     // uint64 [num_chunks]: values of the invariant bits, 0 elsewhere
  // exponent, planes, layers
  uint32_t code_bits = 0;     // 1..4; layers: 2
  std::vector<uint8_t> base;  // uint8 [num_columns]: exponent of code 1
  // layers
  std::array<uint8_t, kSecondSteps + kThirdSteps> steps{};  // of codes 1.. of the second and third layer
  uint32_t longest_bytes = 0;                               // longer rows stay raw; 0: those no shorter than raw ones
  // planes
  uint32_t mantissa_bits = 0;  // 0..22, of plane A; its rows lie in slots of slot_bytes
  // dictionary; code_bits: 1..8
  std::vector<uint64_t> elements;  // uint64 [2^code_bits], ascending: the element of each code
  // sparse
  uint64_t constant = 0;      // the commonest non-zero element
  uint32_t value_bits = 0;    // low bits stored of a narrow non-zero
  uint64_t value_prefix = 0;  // its other bits

  uint32_t row_bytes() const { return num_columns * element_bytes(dtype); }
  uint32_t num_chunks() const { return chunk_bytes ? (row_bytes() + chunk_bytes - 1) / chunk_bytes : 0; }
  // Planes: no element of plane A alone differs by more than this times its own size; 0 for other codecs.
  double error_bound() const;
  bool operator==(const Profile&) const = default;
};

// Throws Error unless the profile could have come from fit(): every codec may then trust it.
void validate(const Profile& profile);

// Of rows that are not encoded, as bytes.
Profile raw_profile(int64_t row_bytes);

// The profile as bytes (FORMAT.md 5) and back; profile_from throws Error on anything else.
std::vector<std::byte> to_bytes(const Profile& profile);
Profile profile_from(std::span<const std::byte> bytes, const std::string& place);
void save(const Profile& profile, const std::string& path);
Profile load_profile(const std::string& path);

struct FitOptions {
  std::string codec = "auto";      // auto, or the name of a codec
  double sample = 0.01;            // share of the rows looked at
  int64_t min_sample = 4096;       // at least so many rows
  uint32_t chunk_bytes = 4;        // invariant: 4 or 8
  uint32_t threshold_percent = 0;  // invariant: 0 = sweep 70..95 in steps of 5
  uint64_t seed = 0;               // which rows
  uint32_t mantissa_bits = 3;      // planes: 0 to 22
};

// What one codec would cost, measured on the sample.
struct Candidate {
  Profile profile;
  double bytes_per_row = 0;   // encoded
  double stored_per_row = 0;  // in memory, in its best layout
  double lines_per_row = 0;   // 128-byte lines over the link for a random row, in its best layout (packing.h)
  double raw_share = 0;       // rows that do not shrink
};

struct Fit {
  Profile profile;
  std::vector<Candidate> candidates;
  int64_t sample_rows = 0;
  std::string why;  // one sentence: the numbers that decided
};

// Reads the sampled rows once and chooses: fewest lines, then least memory. A named codec is taken as asked.
Fit fit(const RowTable& rows, const FitOptions& options = {});

// The mean encoded bytes of these rows under this profile (held-out rows, for instance).
double mean_row_bytes(const RowTable& rows, const Profile& profile);

// ---- 2. Encode -----------------------------------------------------------------------------------------------------

enum class LayoutChoice : uint8_t { kAuto, kPacked, kSlots };

struct EncodeOptions {
  LayoutChoice layout = LayoutChoice::kAuto;  // auto: slots when the profile recommends a stride, else packed
  uint32_t slot_bytes = 0;                    // 0: the profile's, else row_bytes rounded up to 16
  int64_t num_rows = 0;                       // FileWriter, codec planes: rows of the whole table
};

// layout: auto, packed or slots. Throws Error on another one.
EncodeOptions encode_options(const std::string& layout, uint32_t slot_bytes);

// Memory that something else owns and this keeps: a vector, a mapped file, pinned pages.
using Keeper = std::shared_ptr<void>;

// Encoded rows in host memory.
struct EncodedRows {
  Profile profile;
  EncodedRef ref;  // views into what `keepers` own
  std::vector<Keeper> keepers;

  int64_t stored_bytes() const { return ref.data_bytes + ref.plane_b_bytes() + ref.overflow_bytes; }
};

EncodedRows encode(const RowTable& rows, const Profile& profile, const EncodeOptions& options = {});

// Encodes each row over itself: row i stays at i * row_bytes. row_bytes must be a multiple of 4; `rows` is changed and
// must outlive the result.
EncodedRows encode_in_place(const RowTable& rows, const Profile& profile);

// No encoding of `num_rows` rows takes more bytes than this, directory included.
int64_t bound(const Profile& profile, int64_t num_rows, const EncodeOptions& options = {});
// The part of bound() that is rows in their layout, plane B included: neither the directory nor the overflow area.
int64_t data_bound(const Profile& profile, int64_t num_rows, const EncodeOptions& options = {});

// ---- 3. Fetch ------------------------------------------------------------------------------------------------------

// out[i] = row index[i], for every i. Throws Error on an index outside 0..num_rows-1 (nothing is promised about `out`
// then) or on a row that is no valid encoding.
void fetch(const EncodedRows& encoded, std::span<const int64_t> index, void* out);
void decode(const EncodedRows& encoded, void* out);  // all rows, in order

// Rows of codec planes as plane A alone tells them, rounded to bfloat16: to the nearest, of two as near to the even
// one, but nothing but 0 to 0, and every NaN to 0x7fff. Coded rows with up to 6 mantissa bits in plane A are exact.
// out: uint16 [index.size(), num_columns]. Throws Error as fetch() does, and for rows of another codec.
void fetch_bfloat16(const EncodedRows& encoded, std::span<const int64_t> index, uint16_t* out);

// Rows of codec planes as plane A alone tells them, each element within Profile::error_bound(); the same memory. Throws
// Error for rows of another codec.
EncodedRows plane_a_of(const EncodedRows& encoded);

// Some rows as they are stored, to travel: the profile is told apart from them.
struct StoredRows {
  std::vector<uint64_t> entries;              // as of the packed layout, of places in `data`
  base::UninitializedVector<std::byte> data;  // rows at multiples of 4 bytes, each with the room it may have used
};

// The stored form of rows `index`, in this order. Throws Error on an index outside 0..num_rows-1.
StoredRows take(const EncodedRows& encoded, std::span<const int64_t> index);

// The rows of take(), decoded. Throws Error on a row that is no valid encoding; any bytes are safe.
void decode_stored(const Profile& profile, std::span<const uint64_t> entries, std::span<const std::byte> data,
                   void* out);

// ---- 4. Files ------------------------------------------------------------------------------------------------------

// Writes `path` piece by piece, so that the table never needs to be in memory; the file appears under its name when
// finish() returns and not before.
class FileWriter {
 public:
  FileWriter(std::string path, const Profile& profile, const EncodeOptions& options = {});
  ~FileWriter();  // without finish(): removes what was written
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  void append(const RowTable& rows);
  int64_t finish();  // returns the file's bytes

 private:
  struct State;
  std::unique_ptr<State> state_;
};

void save(const EncodedRows& encoded, const std::string& path);
// Maps the file and checks all of it; verify_data = false leaves the rows' checksums for later (verify).
EncodedRows load(const std::string& path, bool verify_data = true);
// The same over bytes in memory, which `keeper` keeps; `place` names them in errors.
EncodedRows load(std::span<const std::byte> bytes, Keeper keeper, const std::string& place, bool verify_data = true);

}  // namespace cohort::ibp
