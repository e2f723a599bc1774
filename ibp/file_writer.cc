#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/checksum.h"
#include "base/temporary_file.h"
#include "base/uninitialized_vector.h"
#include "base/whole_file.h"
#include "ibp/batch_encoder.h"
#include "ibp/bits.h"
#include "ibp/file_format.h"

namespace cohort::ibp {
namespace {

constexpr int64_t kSpillBytes = 8 << 20;

// A checksum for every block of 1 MiB of a section that arrives in pieces.
class BlockChecksums {
 public:
  void add(std::span<const std::byte> bytes) {
    if (filled_ > 0) bytes = add_to_block(bytes);
    const std::size_t first = blocks.size(), count = bytes.size() / kChecksumBlockBytes;
    blocks.resize(first + count);
#pragma omp parallel for schedule(static) if (count > 1)
    for (std::size_t i = 0; i < count; ++i) {
      blocks[first + i] = base::crc32c(bytes.subspan(i * kChecksumBlockBytes, kChecksumBlockBytes));
    }
    add_to_block(bytes.subspan(count * kChecksumBlockBytes));
  }
  void close() {
    if (filled_ == 0) return;
    blocks.push_back(crc_);
    crc_ = 0;
    filled_ = 0;
  }
  std::vector<uint32_t> blocks;  // uint32 [ceil(bytes / 1 MiB)]

 private:
  // Adds to the unfinished block what it has room for; returns the rest.
  std::span<const std::byte> add_to_block(std::span<const std::byte> bytes) {
    const std::size_t count = std::min<std::size_t>(bytes.size(), kChecksumBlockBytes - filled_);
    crc_ = base::crc32c(bytes.first(count), crc_);
    filled_ += count;
    if (filled_ == kChecksumBlockBytes) close();
    return bytes.subspan(count);
  }
  uint32_t crc_ = 0;
  std::size_t filled_ = 0;
};

// The file, section by section: profile, data, then what finish() writes, and the header that counts them all. Codec
// planes: plane B is written behind the data, whose end follows from the number of rows.
class Sections {
 public:
  Sections(std::string path, const Profile& profile, int64_t num_rows) : file_(std::move(path)) {
    write(std::as_bytes(std::span(&header_, 1)));
    const std::vector<std::byte> bytes = to_bytes(profile);
    header_.profile_bytes = bytes.size();
    write(bytes);
    align();
    header_.version = format_version(profile.codec);
    if (profile.codec != Codec::kPlanes) return;
    header_.plane_b_stride_bytes = ProfileTables(profile).ref().plane_b_bytes();
    num_rows_ = num_rows;
    plane_b_at_ = bytes_ + round_up(static_cast<uint64_t>(num_rows) * profile.slot_bytes, kSectionAlign);
  }

  void write_data(std::span<const std::byte> bytes) {
    checksums_.add(bytes);
    write(bytes);
  }
  void write_plane_b(std::span<const std::byte> bytes) {
    plane_b_checksums_.add(bytes);
    base::write_all_at(file_.file(), plane_b_at_ + header_.plane_b_bytes, bytes, file_.place());
    header_.plane_b_bytes += bytes.size();
  }

  // The file's bytes. `spilled`: the first of the overflow rows, where there are any; ref.overflow has those after
  // them.
  int64_t finish(const EncodedRef& ref, const base::TemporaryFile* spilled = nullptr) {
    checksums_.close();
    align();
    if (header_.version == 2) end_plane_b(ref);
    header_.layout = static_cast<uint32_t>(ref.layout);
    header_.num_rows = static_cast<uint64_t>(ref.num_rows);
    header_.data_bytes = static_cast<uint64_t>(ref.data_bytes);
    header_.overflow_bytes = static_cast<uint64_t>(ref.overflow_bytes);
    header_.stride_bytes = ref.stride_bytes;
    header_.max_coded_bytes = ref.max_coded_bytes;
    if (spilled) write_spilled(*spilled);
    write_data({ref.overflow, header_.overflow_bytes - static_cast<uint64_t>(spilled ? spilled->bytes() : 0)});
    align();
    checksums_.close();
    write_directory(ref);
    const auto blocks = std::as_bytes(std::span(checksums_.blocks));
    header_.checksum_bytes = blocks.size();
    header_.checksum_crc = base::crc32c(blocks);
    write(blocks);
    const auto header = std::as_bytes(std::span(&header_, 1));
    header_.header_crc = base::crc32c(header.first(sizeof(header_) - 4));
    base::write_all_at(file_.file(), 0, header, file_.place());
    file_.commit();
    return static_cast<int64_t>(bytes_);
  }

 private:
  void write(std::span<const std::byte> bytes) {
    base::write_all_at(file_.file(), bytes_, bytes, file_.place());
    bytes_ += bytes.size();
  }
  void write_spilled(const base::TemporaryFile& rows) {
    base::UninitializedVector<std::byte> piece(static_cast<std::size_t>(std::min(rows.bytes(), kSpillBytes)));
    for (int64_t at = 0; at < rows.bytes(); at += kSpillBytes) {
      const auto bytes = static_cast<std::size_t>(std::min(kSpillBytes, rows.bytes() - at));
      rows.read(at, piece.data(), bytes);
      write_data(std::span(piece).first(bytes));
    }
  }
  // The sections behind plane B follow it, and its checksums those of the data.
  void end_plane_b(const EncodedRef& ref) {
    if (ref.num_rows != num_rows_) {
      throw base::Error({file_.place(), std::to_string(num_rows_) + " rows of codec planes",
                         std::to_string(ref.num_rows), "say how many there are when the file is begun"});
    }
    plane_b_checksums_.close();
    checksums_.blocks.insert(checksums_.blocks.end(), plane_b_checksums_.blocks.begin(),
                             plane_b_checksums_.blocks.end());
    bytes_ += header_.plane_b_bytes;
    align();
  }
  // Zeros up to a multiple of kSectionAlign.
  void align() {
    const std::array<std::byte, kSectionAlign> zeros{};
    write(std::span(zeros).first(round_up(bytes_, kSectionAlign) - bytes_));
  }
  template <typename T>
  void write_table(const T* table, std::size_t count) {
    const auto bytes = std::as_bytes(std::span(table, count));
    header_.directory_bytes += bytes.size();
    header_.directory_crc = base::crc32c_parallel(bytes, header_.directory_crc);
    write(bytes);
  }
  void write_directory(const EncodedRef& ref) {
    const auto rows = static_cast<std::size_t>(ref.num_rows);
    if (ref.layout == Layout::kPacked) write_table(ref.entries, rows);
    if (ref.layout == Layout::kInPlace) write_table(ref.lengths, rows);
    if (ref.layout == Layout::kSlots) {
      write_table(ref.flags, (rows + 31) / 32);
      write_table(ref.ranks, (rows + 31) / 32);
    }
    align();
  }

  base::WholeFile file_;
  FileHeader header_;
  BlockChecksums checksums_, plane_b_checksums_;
  uint64_t bytes_ = 0, plane_b_at_ = 0;
  int64_t num_rows_ = 0;  // codec planes
};

}  // namespace

struct FileWriter::State {
  BatchEncoder encoder;
  Sections file;
  std::filesystem::path folder;
  std::optional<base::TemporaryFile> spilled{};  // overflow rows, whose section comes behind the data
  base::UninitializedVector<std::byte> batch{}, plane_b{};
  bool finished = false;

  // Keeps at most kSpillBytes of overflow rows in memory.
  void spill() {
    std::vector<std::byte>& overflow = encoder.directory().overflow;
    if (std::ssize(overflow) <= kSpillBytes) return;
    if (!spilled) spilled.emplace(folder);
    spilled->append(overflow.data(), overflow.size());
    std::vector<std::byte>().swap(overflow);
  }
};

FileWriter::FileWriter(std::string path, const Profile& profile, const EncodeOptions& options)
    : state_(new State{
          {profile, options}, {path, profile, options.num_rows}, std::filesystem::absolute(path).parent_path()}) {}

FileWriter::~FileWriter() = default;

void FileWriter::append(const RowTable& rows) {
  base::require(!state_->finished, "append() before finish()");
  const uint64_t room = state_->encoder.batch_bound(rows.num_rows);
  if (state_->batch.size() < room) state_->batch.resize(room);
  const uint64_t plane_b_bytes = state_->encoder.plane_b_bytes(rows.num_rows);
  if (state_->plane_b.size() < plane_b_bytes) state_->plane_b.resize(plane_b_bytes);
  const uint64_t bytes = state_->encoder.encode(rows, state_->batch.data(), state_->plane_b.data());
  state_->file.write_data(std::span(state_->batch).first(bytes));
  state_->file.write_plane_b(std::span(state_->plane_b).first(plane_b_bytes));
  state_->spill();
}

int64_t FileWriter::finish() {
  base::require(!state_->finished, "finish() once");
  state_->finished = true;
  return state_->file.finish(state_->encoder.ref(nullptr, nullptr), state_->spilled ? &*state_->spilled : nullptr);
}

void save(const EncodedRows& encoded, const std::string& path) {
  if (encoded.profile.codec == Codec::kPlanes && !encoded.ref.plane_b && encoded.ref.num_rows > 0) {
    throw base::Error({path + ": rows to save", "both planes", "plane A alone", "save the rows that it was taken of"});
  }
  Sections file(path, encoded.profile, encoded.ref.num_rows);
  file.write_data({encoded.ref.data, static_cast<std::size_t>(encoded.ref.data_bytes)});
  file.write_plane_b({encoded.ref.plane_b, static_cast<std::size_t>(encoded.ref.plane_b_bytes())});
  file.finish(encoded.ref);
}

}  // namespace cohort::ibp
