#include "cache/decode_rows.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "base/cuda_check.h"
#include "base/device.h"
#include "base/format.h"
#include "base/owners.h"
#include "cache/pack_rows.h"
#include "ibp/gpu.h"

namespace cohort::cache {
namespace {

using base::cuda_check;

// What of the rows is decoded at a time.
struct Pieces {
  int64_t rows_of(int64_t piece) const { return std::min(piece_rows, num_rows - piece * piece_rows); }
  int64_t count() const { return (num_rows + piece_rows - 1) / piece_rows; }
  int64_t num_rows, piece_rows;
};

// Encoded rows on their way to the GPUs.
struct PinnedPiece {
  uint64_t* entry() const { return reinterpret_cast<uint64_t*>(entries.data()); }
  base::PinnedBytes bytes, entries;
};

// One GPU's part of it; the current GPU's.
class PieceDecoder {
 public:
  PieceDecoder(const SlabRows& rows, const Pieces& pieces, RowsOnGpu target)
      : row_bytes_(rows.profile().row_bytes()),
        max_coded_bytes_(rows.max_coded_bytes()),
        pieces_(pieces),
        target_(target),
        profile_(rows.profile()),
        counts_(base::upload(
            std::vector<unsigned long long>{static_cast<unsigned long long>(pieces.piece_rows),
                                            static_cast<unsigned long long>(pieces.rows_of(pieces.count() - 1))})),
        statuses_(static_cast<std::size_t>(pieces.count())) {
    std::vector<int32_t> places(static_cast<std::size_t>(pieces.piece_rows));
    std::iota(places.begin(), places.end(), 0);
    places_ = base::upload(places);
    for (auto& entries : entries_) entries = base::DeviceArray<uint64_t>(places.size());
    base::fill_gpu(statuses_.data(), 0xff, statuses_.size() * sizeof(unsigned long long));
  }

  // Waits until a buffer's last piece is decoded.
  void wait(std::size_t buffer) const { decoded_[buffer].synchronize(); }

  // Begins to decode a piece that lies in a buffer.
  void decode(int64_t piece, std::size_t buffer, const PinnedPiece& from, uint32_t step_bytes) {
    base::choose_gpu(target_.gpu);
    const auto bytes = static_cast<std::size_t>(pieces_.rows_of(piece)) * sizeof(uint64_t);
    uint64_t* entries = entries_[buffer].data();
    cuda_check(cudaMemcpyAsync(entries, from.entry(), bytes, cudaMemcpyHostToDevice, stream_), "copy entries of rows");
    ibp::LocatedRows rows;
    rows.entries = entries;
    rows.positions = places_.data();
    rows.count = counts_.data() + (piece + 1 == pieces_.count());
    rows.regions = {ibp::RegionRef{from.bytes.data(), static_cast<int64_t>(from.bytes.bytes())}};
    rows.step_bytes = step_bytes;
    rows.max_coded_bytes = max_coded_bytes_;
    ibp::fetch_located(profile_, rows, target_.to + piece * pieces_.piece_rows * row_bytes_, statuses_.data() + piece,
                       stream_);
    decoded_[buffer].record(stream_);
  }

  // Waits for all pieces.
  void finish() const {
    stream_.synchronize();
    std::vector<unsigned long long> statuses(statuses_.size());
    cuda_check(cudaMemcpy(statuses.data(), statuses_.data(), statuses.size() * sizeof(unsigned long long),
                          cudaMemcpyDeviceToHost),
               "read how rows were decoded");
    for (std::size_t piece = 0; piece < statuses.size(); ++piece) {
      if (statuses[piece] == ibp::kNoFetchError) continue;
      const int64_t row = static_cast<int64_t>(piece) * pieces_.piece_rows + static_cast<int64_t>(statuses[piece] / 2);
      throw base::Error({base::format("feature row {}", row), "a valid encoding", "bytes that are not an encoded row",
                         "the data is damaged: run cohort dataset check"});
    }
  }

 private:
  int64_t row_bytes_;
  uint32_t max_coded_bytes_;
  Pieces pieces_;
  RowsOnGpu target_;
  ibp::DeviceProfile profile_;
  base::DeviceArray<unsigned long long> counts_;    // rows of a piece, and of the last one
  base::DeviceArray<unsigned long long> statuses_;  // by piece
  base::DeviceArray<int32_t> places_;               // of rows in a piece: 0, 1, ...
  std::array<base::DeviceArray<uint64_t>, 2> entries_;
  base::Stream stream_;
  std::array<base::Event, 2> decoded_{base::Event{cudaEventDisableTiming}, base::Event{cudaEventDisableTiming}};
};

}  // namespace

void decode_rows(const SlabRows& rows, int64_t num_rows, std::span<const RowsOnGpu> gpus, int64_t piece_bytes) {
  const int64_t row_bytes = rows.profile().row_bytes(), align = rows.align_bytes();
  base::require(row_bytes % 16 == 0 && row_bytes > 0, "rows of a multiple of 16 bytes");
  if (num_rows == 0) return;
  const Pieces pieces{num_rows, std::clamp<int64_t>(piece_bytes / row_bytes, 1, num_rows)};
  const auto piece_rows = static_cast<std::size_t>(pieces.piece_rows);
  std::array<PinnedPiece, 2> buffers;
  for (PinnedPiece& buffer : buffers) {
    buffer.bytes = base::PinnedBytes(piece_rows * static_cast<std::size_t>(rows.most_bytes()));
    buffer.entries = base::PinnedBytes(piece_rows * sizeof(uint64_t));
  }
  std::vector<PieceDecoder> decoders;
  for (const RowsOnGpu& target : gpus) {
    base::choose_gpu(target.gpu);
    decoders.emplace_back(rows, pieces, target);
  }
  RowReader reader(rows);
  std::vector<uint32_t> nodes(piece_rows);
  for (int64_t piece = 0; piece < pieces.count(); ++piece) {
    const auto turn = static_cast<std::size_t>(piece % 2);
    const PinnedPiece& buffer = buffers[turn];
    nodes.resize(static_cast<std::size_t>(pieces.rows_of(piece)));
    std::iota(nodes.begin(), nodes.end(), static_cast<uint32_t>(piece * pieces.piece_rows));
    const auto spans = reader.read(nodes);
    for (const PieceDecoder& decoder : decoders) decoder.wait(turn);
    const PackedRows packed =
        pack_rows(spans, align, static_cast<int64_t>(buffer.bytes.bytes()), 0, buffer.bytes.data(), buffer.entry());
    base::require(packed.count == std::ssize(spans), "room for a piece of rows");
    for (PieceDecoder& decoder : decoders) decoder.decode(piece, turn, buffer, packed.step_bytes);
  }
  for (const PieceDecoder& decoder : decoders) decoder.finish();
}

}  // namespace cohort::cache
