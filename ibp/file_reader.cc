#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/checksum.h"
#include "base/format.h"
#include "base/mapping.h"
#include "ibp/bits.h"
#include "ibp/codecs.h"
#include "ibp/file_format.h"
#include "ibp/host.h"

namespace cohort::ibp {
namespace {

using base::Error;

constexpr int64_t kBlocksOfPiece = 256;  // of 1 MiB: so much of a file is checked at a time
constexpr const char* kDamaged = "the file is damaged or cut short; encode the rows again";

// Reads a whole file image; every offset is checked before it is used.
class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& place) : bytes_(bytes), place_(place) {
    read_header();
    lay_out_sections();
  }

  EncodedRows read() const {
    EncodedRows encoded;
    encoded.profile = profile_from(section(kProfile), place_ + ": profile");
    const Codec codec = encoded.profile.codec;
    check(header_.version == format_version(codec),
          base::format("version {} for codec {}", format_version(codec), name_of(codec)),
          base::format("version {}", header_.version));
    check_shape(encoded.profile);
    check_crc("a directory", base::crc32c_parallel(section(kDirectory)), header_.directory_crc);
    check_crc("checksums", base::crc32c(section(kChecksums)), header_.checksum_crc);
    encoded.ref = make_ref(encoded.profile);
    check_directory(encoded.ref);
    return encoded;
  }

  // `after_piece` is called whenever a piece of the file is checked.
  void verify_data(const std::function<void()>& after_piece = [] {}) const {
    const auto* blocks = section(kChecksums).data();
    verify_blocks(section(kData), blocks, "data", after_piece);
    blocks += num_blocks(header_.data_bytes) * 4;
    verify_blocks(section(kPlaneB), blocks, "plane B", after_piece);
    verify_blocks(section(kOverflow), blocks + num_blocks(header_.plane_b_bytes) * 4, "overflow", after_piece);
  }

 private:
  enum Section { kProfile, kData, kPlaneB, kOverflow, kDirectory, kChecksums, kNumSections };

  static uint64_t num_blocks(uint64_t bytes) { return (bytes + kChecksumBlockBytes - 1) / kChecksumBlockBytes; }

  [[noreturn]] void fail(const std::string& expected, const std::string& found) const {
    throw Error({place_, expected, found, kDamaged});
  }
  void check(bool condition, const std::string& expected, const std::string& found) const {
    if (!condition) fail(expected, found);
  }

  void check_crc(const char* what, uint32_t found, uint32_t stored) const {
    check(found == stored, base::format("{} with checksum {:08x}, as the file says", what, stored),
          base::format("checksum {:08x}", found));
  }

  void read_header() {
    check(bytes_.size() >= sizeof(header_), "a header of 128 bytes", base::format("{} bytes", bytes_.size()));
    std::memcpy(&header_, bytes_.data(), sizeof(header_));
    if (header_.magic != kFileMagic) {
      throw Error({place_, "a file that begins with IBPROWS1", "other bytes at its beginning",
                   "is it a file of encoded rows?"});
    }
    if (header_.version < 1 || header_.version > kNewestVersion) {
      throw Error({place_, base::format("version 1 to {}", kNewestVersion), base::format("version {}", header_.version),
                   "a newer program wrote it"});
    }
    check_crc("a header", base::crc32c(bytes_.first(sizeof(header_) - 4)), header_.header_crc);
    check(header_.version == 2 || (header_.plane_b_bytes == 0 && header_.plane_b_stride_bytes == 0),
          "no plane B but in version 2", base::format("{} bytes", header_.plane_b_bytes));
  }

  // Sections follow each other at multiples of 128; the last ends the file.
  void lay_out_sections() {
    const std::array<uint64_t, kNumSections> lengths = {header_.profile_bytes,   header_.data_bytes,
                                                        header_.plane_b_bytes,   header_.overflow_bytes,
                                                        header_.directory_bytes, header_.checksum_bytes};
    uint64_t position = sizeof(header_);
    for (int i = 0; i < kNumSections; ++i) {
      position = round_up(position, kSectionAlign);
      check(position <= bytes_.size() && lengths[std::size_t(i)] <= bytes_.size() - position, "all sections",
            base::format("an end after {} bytes", bytes_.size()));
      sections_[std::size_t(i)] = bytes_.subspan(position, lengths[std::size_t(i)]);
      position += lengths[std::size_t(i)];
    }
    check(position == bytes_.size(), base::format("{} bytes", position), base::format("{} bytes", bytes_.size()));
  }

  std::span<const std::byte> section(Section which) const { return sections_[which]; }

  void check_shape(const Profile& profile) const {
    const uint64_t rows = header_.num_rows;
    check(rows <= (uint64_t{1} << 40), "at most 2^40 rows", base::format("{}", rows));
    check(header_.layout <= 2, "a known layout", base::format("number {}", header_.layout));
    const auto layout = static_cast<Layout>(header_.layout);
    const uint64_t words = (rows + 31) / 32;
    const uint64_t directory = layout == Layout::kPacked ? rows * 8 : layout == Layout::kInPlace ? rows * 2 : words * 8;
    check(header_.directory_bytes == directory, base::format("{} bytes of directory", directory),
          base::format("{}", header_.directory_bytes));
    const uint64_t blocks =
        num_blocks(header_.data_bytes) + num_blocks(header_.plane_b_bytes) + num_blocks(header_.overflow_bytes);
    check(header_.checksum_bytes == blocks * 4, base::format("{} checksums", blocks),
          base::format("{} bytes", header_.checksum_bytes));
    const uint32_t stride = header_.stride_bytes;
    const uint64_t whole = round_up(profile.row_bytes(), 16);
    const bool stride_fits = layout == Layout::kPacked    ? stride == 0
                             : layout == Layout::kInPlace ? stride == profile.row_bytes() && stride % 4 == 0
                                                          : stride > 0 && stride % 16 == 0 && stride <= whole;
    check(stride_fits, "a stride for this layout", base::format("{}", stride));
    check(layout == Layout::kPacked || header_.data_bytes == rows * stride,
          base::format("{} bytes of rows", rows * stride), base::format("{}", header_.data_bytes));
    if (profile.codec == Codec::kPlanes) check_planes(profile, layout);
    check(layout == Layout::kSlots ? header_.overflow_bytes % whole == 0 : header_.overflow_bytes == 0,
          "overflow rows of one size", base::format("{} bytes", header_.overflow_bytes));
    check(header_.max_coded_bytes <= whole, "coded rows no longer than raw ones",
          base::format("{} bytes", header_.max_coded_bytes));
  }

  void check_planes(const Profile& profile, Layout layout) const {
    const uint32_t plane_b = ProfileTables(profile).ref().plane_b_bytes();
    check(layout == Layout::kSlots && header_.stride_bytes == profile.slot_bytes,
          "the profile's slots for codec planes",
          base::format("layout {} with a stride of {}", name_of(layout), header_.stride_bytes));
    check(header_.plane_b_stride_bytes == plane_b && header_.plane_b_bytes == header_.num_rows * plane_b,
          base::format("{} bytes of plane B", header_.num_rows * plane_b), base::format("{}", header_.plane_b_bytes));
  }

  EncodedRef make_ref(const Profile& profile) const {
    const std::byte* directory = section(kDirectory).data();
    EncodedRef ref;
    ref.layout = static_cast<Layout>(header_.layout);
    ref.data = section(kData).data();
    ref.overflow = section(kOverflow).data();
    if (header_.version == 2) ref.plane_b = section(kPlaneB).data();
    ref.plane_b_stride_bytes = header_.plane_b_stride_bytes;
    ref.num_rows = static_cast<int64_t>(header_.num_rows);
    ref.data_bytes = static_cast<int64_t>(header_.data_bytes);
    ref.overflow_bytes = static_cast<int64_t>(header_.overflow_bytes);
    ref.row_bytes = profile.row_bytes();
    ref.stride_bytes = header_.stride_bytes;
    ref.overflow_stride_bytes = static_cast<uint32_t>(round_up(ref.row_bytes, 16));
    ref.max_coded_bytes = header_.max_coded_bytes;
    if (ref.layout == Layout::kPacked) ref.entries = reinterpret_cast<const uint64_t*>(directory);
    if (ref.layout == Layout::kInPlace) ref.lengths = reinterpret_cast<const uint16_t*>(directory);
    if (ref.layout == Layout::kSlots) {
      ref.flags = reinterpret_cast<const uint32_t*>(directory);
      ref.ranks = ref.flags + (header_.num_rows + 31) / 32;
    }
    return ref;
  }

  // Every row lies inside its section, and no coded row is longer than the header says.
  void check_directory(const EncodedRef& ref) const {
    if (ref.layout == Layout::kSlots) return check_ranks(ref);
    int64_t bad = -1;
#pragma omp parallel for schedule(static) reduction(max : bad) if (worth_threads(ref.num_rows * 8))
    for (int64_t row = 0; row < ref.num_rows; ++row) {
      if (!row_fits(ref, row)) bad = row;
    }
    if (bad >= 0) fail("rows inside the data", base::format("row {} outside", bad));
  }

  bool row_fits(const EncodedRef& ref, int64_t row) const {
    const RowSpan span = locate(ref, row);
    if (static_cast<uint64_t>(span.begin - ref.data) + span.bytes > header_.data_bytes) return false;
    if (span.raw) return span.bytes == round_up(ref.row_bytes, 4);
    return span.bytes > 0 &&
           span.bytes <= (ref.lengths ? std::min(ref.stride_bytes, ref.max_coded_bytes) : ref.max_coded_bytes);
  }

  void check_ranks(const EncodedRef& ref) const {
    uint64_t before = 0;
    for (int64_t word = 0; word < (ref.num_rows + 31) / 32; ++word) {
      if (ref.ranks[word] != before) fail("ranks that count the flags", base::format("another in word {}", word));
      before += count_ones(ref.flags[word]);
    }
    check(before * ref.overflow_stride_bytes == header_.overflow_bytes, base::format("{} overflow rows", before),
          base::format("{} bytes of them", header_.overflow_bytes));
    check(ref.max_coded_bytes <= ref.stride_bytes, "coded rows inside their slots",
          base::format("{} bytes", ref.max_coded_bytes));
  }

  void verify_blocks(std::span<const std::byte> bytes, const std::byte* blocks, const char* what,
                     const std::function<void()>& after_piece) const {
    const auto count = static_cast<int64_t>(num_blocks(bytes.size()));
    for (int64_t first = 0; first < count; first += kBlocksOfPiece) {
      int64_t bad = -1;
#pragma omp parallel for schedule(static) reduction(max : bad)
      for (int64_t i = first; i < std::min(count, first + kBlocksOfPiece); ++i) {
        const auto begin = static_cast<std::size_t>(i) * kChecksumBlockBytes;
        const auto block = bytes.subspan(begin, std::min<std::size_t>(kChecksumBlockBytes, bytes.size() - begin));
        if (base::crc32c(block) != load_as<uint32_t>(blocks + i * 4)) bad = i;
      }
      check(bad < 0, base::format("{} with correct checksums", what), base::format("a wrong one in MiB {}", bad));
      after_piece();
    }
  }

  std::span<const std::byte> bytes_;
  const std::string& place_;
  FileHeader header_;
  std::array<std::span<const std::byte>, kNumSections> sections_;
};

}  // namespace

EncodedRows load(std::span<const std::byte> bytes, Keeper keeper, const std::string& place, bool verify_data) {
  demand_multiple(place, bytes.data(), 16);
  const Reader reader(bytes, place);
  EncodedRows encoded = reader.read();
  if (verify_data) reader.verify_data();
  encoded.keepers = {std::move(keeper)};
  return encoded;
}

namespace {

base::Mapping mapped(const std::string& path) {
  base::Mapping file = base::Mapping::of(path);
  if (file.bytes() == 0) throw Error({path, "a header of 128 bytes", "an empty file", kDamaged});
  return file;
}

}  // namespace

EncodedRows load(const std::string& path, bool verify_data) {
  auto file = std::make_shared<base::Mapping>(mapped(path));
  const std::span<const std::byte> bytes(file->data(), file->bytes());
  return load(bytes, std::move(file), path, verify_data);
}

void verify(const std::string& path) {
  const base::Mapping file = mapped(path);
  const Reader reader({file.data(), file.bytes()}, path);
  reader.read();
  reader.verify_data([&] { file.release(); });
}

}  // namespace cohort::ibp
