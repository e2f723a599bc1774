// Encodes a table batch by batch and keeps its directory: behind encode() and FileWriter. Internal to ibp/.
#pragma once

#include <vector>

#include "ibp/row_codec.h"

namespace cohort::ibp {

// The layout and slot stride that `options` mean for this profile.
struct ChosenLayout {
  Layout layout = Layout::kPacked;
  uint32_t slot_bytes = 0;  // 0 unless slots
};
ChosenLayout choose_layout(const Profile& profile, const EncodeOptions& options);

// What finds the rows, in host memory.
struct Directory {
  std::vector<uint64_t> entries;    // uint64 [num_rows] (packed)
  std::vector<uint32_t> flags;      // uint32 [ceil(num_rows / 32)] (slots)
  std::vector<uint32_t> ranks;      // uint32 [ceil(num_rows / 32)] (slots)
  std::vector<std::byte> overflow;  // raw rows at overflow_stride_bytes (slots), those that nobody has taken away
  int64_t num_rows = 0;
  uint64_t data_bytes = 0;
  uint32_t num_overflow = 0;
  uint32_t max_coded_bytes = 0;

  // Adds the row after the last one to the slots directory.
  void add_slot(bool overflows);
};

// One group of rows of the packed layout, encoded.
struct PackedGroup {
  uint32_t bytes = 0;  // whole lines
  uint32_t max_coded_bytes = 0;
  uint64_t offset = 0;  // within its batch
};

class BatchEncoder {
 public:
  BatchEncoder(const Profile& profile, const EncodeOptions& options);
  // Room that encode() needs for `num_rows` rows in `out`.
  uint64_t batch_bound(int64_t num_rows) const;
  // And in `plane_b`; 0 but for codec planes.
  uint64_t plane_b_bytes(int64_t num_rows) const { return static_cast<uint64_t>(num_rows) * plane_b_stride_; }
  // Encodes the rows that follow those given before into `out`, zeros where nothing lies; returns the bytes used, a
  // multiple of 16. Batches of a multiple of 64 rows lie as one big batch would. Codec planes: `out` is plane A.
  uint64_t encode(const RowTable& rows, std::byte* out, std::byte* plane_b);
  const Profile& profile() const { return profile_; }
  Directory& directory() { return directory_; }
  // The view of all rows so far, over data that lies at `data`, and plane B. Its overflow rows are there if none were
  // taken out of the directory.
  EncodedRef ref(const std::byte* data, const std::byte* plane_b) const;

 private:
  uint64_t encode_packed(const RowTable& rows, std::byte* out);
  uint64_t encode_staged(const RowTable& rows, uint64_t room, std::byte* out, uint64_t before);
  uint64_t encode_slots(const RowTable& rows, std::byte* out, std::byte* plane_b);

  Profile profile_;
  ProfileTables tables_;
  ChosenLayout chosen_;
  uint32_t plane_b_stride_ = 0;
  Directory directory_;
  std::vector<PackedGroup> groups_;
  std::vector<std::byte> staging_;  // uint8 [groups, room of a group]
};

}  // namespace cohort::ibp
