#include "dataset/sorting/id_map.h"

#include <algorithm>
#include <bit>

#include "dataset/npy_writer.h"
#include "dataset/parallel.h"

namespace cohort::dataset {
namespace {

constexpr int kMaxPieceBits = 20;
constexpr uint64_t kSign = uint64_t{1} << 63;  // flipped, so that keys are in the order of signed ids

uint64_t distance(int64_t from, int64_t to) { return static_cast<uint64_t>(to) - static_cast<uint64_t>(from); }

}  // namespace

IdMap::IdMap(std::span<const int64_t> ids, std::span<const int64_t> nodes) : ids_(ids), nodes_(nodes) {
  if (ids.empty()) return;
  const auto range_bits = static_cast<int>(std::bit_width(distance(ids.front(), ids.back())));
  const int piece_bits = std::min({kMaxPieceBits, range_bits, static_cast<int>(std::bit_width(ids.size()))});
  shift_ = range_bits - piece_bits;
  starts_.assign((std::size_t{1} << piece_bits) + 1, static_cast<int64_t>(ids.size()));
  std::size_t piece = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::size_t of_id = distance(ids.front(), ids[i]) >> shift_;
    for (; piece <= of_id; ++piece) starts_[piece] = static_cast<int64_t>(i);
  }
}

int64_t IdMap::node(int64_t id) const {
  if (ids_.empty() || id < ids_.front() || id > ids_.back()) return -1;
  const std::size_t piece = distance(ids_.front(), id) >> shift_;
  const auto last = ids_.begin() + starts_[piece + 1];
  const auto found = std::lower_bound(ids_.begin() + starts_[piece], last, id);
  if (found == last || *found != id) return -1;
  return nodes_.empty() ? found - ids_.begin() : nodes_[static_cast<std::size_t>(found - ids_.begin())];
}

void IdSorter::add(const int64_t* ids, int64_t stride, int64_t count, const std::stop_token& stop) {
  for (int64_t done = 0; done < count;) {
    const auto room = keys_.room(static_cast<std::size_t>(count - done), 1, stop);
    for_chunks(static_cast<int64_t>(room.size()), stop, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        room[static_cast<std::size_t>(i)] = static_cast<uint64_t>(ids[(done + i) * stride]) ^ kSign;
      }
    });
    keys_.added(room.size());
    done += static_cast<int64_t>(room.size());
  }
}

void IdSorter::write(const std::filesystem::path& path, const std::stop_token& stop) {
  NpyWriter file(path, DType::int64);
  std::vector<int64_t> ids;
  keys_.merge(
      [&](std::span<const uint64_t> keys) {
        ids.clear();
        for (const uint64_t key : keys) ids.push_back(static_cast<int64_t>(key ^ kSign));
        file.append<int64_t>(ids);
      },
      stop);
  file.finish();
}

}  // namespace cohort::dataset
