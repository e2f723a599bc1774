#include <memory>
#include <utility>

#include "base/check.h"
#include "ibp/batch_encoder.h"
#include "ibp/bits.h"
#include "ibp/checksum.h"
#include "ibp/file_format.h"
#include "ibp/mapped_writer.h"

namespace cohort::ibp {
namespace {

// A checksum for every block of 1 MiB of a section that arrives in pieces.
class BlockChecksums {
 public:
  void add(std::span<const std::byte> bytes) {
    if (filled_ > 0) bytes = add_to_block(bytes);
    const std::size_t first = blocks.size(), count = bytes.size() / kChecksumBlockBytes;
    blocks.resize(first + count);
#pragma omp parallel for schedule(static) if (count > 1)
    for (std::size_t i = 0; i < count; ++i) {
      blocks[first + i] = crc32c(bytes.subspan(i * kChecksumBlockBytes, kChecksumBlockBytes));
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
    crc_ = crc32c(bytes.first(count), crc_);
    filled_ += count;
    if (filled_ == kChecksumBlockBytes) close();
    return bytes.subspan(count);
  }
  uint32_t crc_ = 0;
  std::size_t filled_ = 0;
};

// The sections after the data, and the header that counts them all.
class Tail {
 public:
  Tail(MappedWriter& file, BlockChecksums& checksums) : file_(file), checksums_(checksums) {}

  int64_t write(const EncodedRef& ref, uint64_t profile_bytes) {
    checksums_.close();
    file_.align();
    FileHeader header;
    header.layout = static_cast<uint32_t>(ref.layout);
    header.num_rows = static_cast<uint64_t>(ref.num_rows);
    header.profile_bytes = profile_bytes;
    header.data_bytes = static_cast<uint64_t>(ref.data_bytes);
    header.overflow_bytes = static_cast<uint64_t>(ref.overflow_bytes);
    header.stride_bytes = ref.stride_bytes;
    header.max_coded_bytes = ref.max_coded_bytes;
    const std::span overflow(ref.overflow, header.overflow_bytes);
    file_.write(overflow);
    file_.align();
    checksums_.add(overflow);
    checksums_.close();
    write_directory(ref, header);
    const auto blocks = std::as_bytes(std::span(checksums_.blocks));
    header.checksum_bytes = blocks.size();
    header.checksum_crc = crc32c(blocks);
    file_.write(blocks);
    header.header_crc = crc32c(std::as_bytes(std::span(&header, 1)).first(sizeof(header) - 4));
    const uint64_t bytes = file_.position();
    file_.commit(std::as_bytes(std::span(&header, 1)));
    return static_cast<int64_t>(bytes);
  }

 private:
  template <typename T>
  void write_table(const T* table, std::size_t count, FileHeader& header) {
    const auto bytes = std::as_bytes(std::span(table, count));
    header.directory_bytes += bytes.size();
    header.directory_crc = crc32c_parallel(bytes, header.directory_crc);
    file_.write(bytes);
  }
  void write_directory(const EncodedRef& ref, FileHeader& header) {
    const auto rows = static_cast<std::size_t>(ref.num_rows);
    if (ref.layout == Layout::kPacked) write_table(ref.entries, rows, header);
    if (ref.layout == Layout::kInPlace) write_table(ref.lengths, rows, header);
    if (ref.layout == Layout::kSlots) {
      write_table(ref.flags, (rows + 31) / 32, header);
      write_table(ref.ranks, (rows + 31) / 32, header);
    }
    file_.align();
  }
  MappedWriter& file_;
  BlockChecksums& checksums_;
};

uint64_t write_front(MappedWriter& file, const Profile& profile) {
  const FileHeader empty{};
  file.write(std::as_bytes(std::span(&empty, 1)));
  const std::vector<std::byte> bytes = to_bytes(profile);
  file.write(bytes);
  file.align();
  return bytes.size();
}

}  // namespace

struct FileWriter::State {
  State(std::string path, const Profile& profile, const EncodeOptions& options)
      : encoder(profile, options), file(std::move(path)), profile_bytes(write_front(file, profile)) {}
  BatchEncoder encoder;
  MappedWriter file;
  uint64_t profile_bytes;
  BlockChecksums checksums;
  bool finished = false;
};

FileWriter::FileWriter(std::string path, const Profile& profile, const EncodeOptions& options)
    : state_(std::make_unique<State>(std::move(path), profile, options)) {}

FileWriter::~FileWriter() = default;

void FileWriter::append(const RowTable& rows) {
  base::require(!state_->finished, "append() before finish()");
  state_->file.write_mapped(state_->encoder.batch_bound(rows.num_rows), [&](std::byte* out) {
    const uint64_t bytes = state_->encoder.encode(rows, out);
    state_->checksums.add(std::span<const std::byte>(out, bytes));
    return bytes;
  });
}

int64_t FileWriter::finish() {
  base::require(!state_->finished, "finish() once");
  state_->finished = true;
  return Tail(state_->file, state_->checksums).write(state_->encoder.ref(nullptr), state_->profile_bytes);
}

void save(const EncodedRows& encoded, const std::string& path) {
  MappedWriter file(path);
  const uint64_t profile_bytes = write_front(file, encoded.profile);
  const std::span data(encoded.ref.data, static_cast<std::size_t>(encoded.ref.data_bytes));
  BlockChecksums checksums;
  checksums.add(data);
  file.write(data);
  Tail(file, checksums).write(encoded.ref, profile_bytes);
}

}  // namespace cohort::ibp
