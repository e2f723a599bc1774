#include "dataset/sorting/text_map.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "dataset/parallel.h"

namespace cohort::dataset {
namespace {

constexpr std::size_t kAtOnce = 32;         // texts whose places come from memory side by side
constexpr int64_t kTextsAThread = 1 << 17;  // fewer are not worth a second thread
constexpr int kPlaceBits = 40;
constexpr uint64_t kPlaces = uint64_t{1} << kPlaceBits;

struct Header {
  uint32_t node, length;
};

template <typename Word>
uint64_t word_at(const char* bytes) noexcept {
  Word word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

// The upper and the lower half of a product.
uint64_t mixed(uint64_t a, uint64_t b) noexcept {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product >> 64) ^ static_cast<uint64_t>(product);
}

// In words of 8 bytes, the last of which may overlap the one before.
uint64_t hash_of(std::string_view text) noexcept {
  constexpr uint64_t kFirst = 0x9E3779B97F4A7C15, kSecond = 0xD1B54A32D192ED03;
  const char *begin = text.data(), *const end = begin + text.size();
  uint64_t hash = kFirst ^ text.size(), first = 0, last = 0;
  for (; end - begin > 16; begin += 16) {
    hash = mixed(word_at<uint64_t>(begin) ^ kSecond, word_at<uint64_t>(begin + 8) ^ hash);
  }
  if (end - begin >= 8) {
    first = word_at<uint64_t>(begin), last = word_at<uint64_t>(end - 8);
  } else if (end - begin >= 4) {
    first = word_at<uint32_t>(begin), last = word_at<uint32_t>(end - 4);
  } else {
    for (; begin < end; ++begin) first = first << 8 | static_cast<unsigned char>(*begin);
  }
  return mixed(mixed(first ^ kSecond, last ^ hash), kFirst);
}

// As memcmp says, whose call takes longer than the comparison of a short text.
bool are_equal(const char* a, const char* b, std::size_t size) noexcept {
  if (size < 8) {
    while (size > 0 && a[size - 1] == b[size - 1]) --size;
    return size == 0;
  }
  for (std::size_t i = 0; i + 8 < size; i += 8) {
    if (word_at<uint64_t>(a + i) != word_at<uint64_t>(b + i)) return false;
  }
  return word_at<uint64_t>(a + size - 8) == word_at<uint64_t>(b + size - 8);
}

std::size_t begin_of(uint64_t slot) noexcept { return (slot & (kPlaces - 1)) - 1; }

}  // namespace

TextMap::TextMap(Texts ids, const std::stop_token& stop) {
  const auto count = static_cast<std::size_t>(ids.size());
  const auto num_bytes = static_cast<std::size_t>(ids.offsets.back() - ids.offsets.front());
  base::require(count <= UINT32_MAX, "fewer than 2^32 texts");
  base::require(count * sizeof(Header) + num_bytes < kPlaces, "texts of less than 1 TB");
  slots_.resize(std::bit_ceil(2 * count + 1));
  records_.resize(count * sizeof(Header) + num_bytes);
  std::size_t used = 0;
  for (int64_t i = 0; i < ids.size(); ++i) {
    if (i % kChunk == 0 && stop.stop_requested()) throw Interrupted();
    if (i + static_cast<int64_t>(kAtOnce) < ids.size()) {
      __builtin_prefetch(&slots_[home(hash_of(ids[i + static_cast<int64_t>(kAtOnce)]))], 1);
    }
    const std::string_view text = ids[i];
    base::require(text.size() <= UINT32_MAX, "texts of less than 4 GB");
    const uint64_t hash = hash_of(text);
    const auto [place, node] = lookup(text, hash, candidate(hash, home(hash)));
    if (node >= 0) continue;
    const Header header{static_cast<uint32_t>(i), static_cast<uint32_t>(text.size())};
    std::memcpy(records_.data() + used, &header, sizeof header);
    std::copy(text.begin(), text.end(), records_.begin() + static_cast<std::ptrdiff_t>(used + sizeof header));
    slots_[place] = (hash & ~(kPlaces - 1)) | (used + 1);
    used += sizeof header + text.size();
    ++distinct_;
  }
}

inline std::size_t TextMap::candidate(uint64_t hash, std::size_t place) const noexcept {
  while (slots_[place] != 0 && (slots_[place] ^ hash) >> kPlaceBits != 0) place = next(place);
  return place;
}

inline TextMap::Found TextMap::lookup(std::string_view text, uint64_t hash, std::size_t place) const noexcept {
  for (; slots_[place] != 0; place = candidate(hash, next(place))) {
    const char* const record = records_.data() + begin_of(slots_[place]);
    Header header;
    std::memcpy(&header, record, sizeof header);
    if (header.length != text.size()) continue;
    if (are_equal(record + sizeof header, text.data(), text.size())) return {place, header.node};
  }
  return {place, -1};
}

void TextMap::find_some(Texts texts, int64_t begin, std::size_t count, int64_t* nodes) const noexcept {
  std::array<uint64_t, kAtOnce> hashes;
  std::array<std::size_t, kAtOnce> places;
  for (std::size_t i = 0; i < count; ++i) {
    hashes[i] = hash_of(texts[begin + static_cast<int64_t>(i)]);
    __builtin_prefetch(&slots_[home(hashes[i])]);
  }
  for (std::size_t i = 0; i < count; ++i) {
    places[i] = candidate(hashes[i], home(hashes[i]));
    const Slot slot = slots_[places[i]];
    if (slot == 0) continue;
    const char* const record = records_.data() + begin_of(slot);
    __builtin_prefetch(record);
    __builtin_prefetch(record + sizeof(Header) + texts[begin + static_cast<int64_t>(i)].size());  // often the next line
  }
  for (std::size_t i = 0; i < count; ++i) {
    nodes[i] = lookup(texts[begin + static_cast<int64_t>(i)], hashes[i], places[i]).node;
  }
}

void TextMap::find(Texts texts, std::span<int64_t> nodes, const std::stop_token& stop) const {
  base::require(static_cast<int64_t>(nodes.size()) == texts.size(), "a place for the node of each text");
  const auto find_all = [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const std::size_t count = std::min(kAtOnce, static_cast<std::size_t>(end - begin));
      find_some(texts, begin, count, nodes.data() + begin);
      begin += static_cast<int64_t>(count);
    }
  };
  for_chunks(texts.size(), stop, find_all, kTextsAThread);
}

}  // namespace cohort::dataset
