#include "dataset/sorting/key_sorter.h"

#include <algorithm>
#include <bit>
#include <future>
#include <utility>

#include "base/check.h"
#include "base/radix_sort.h"
#include "dataset/parallel.h"

namespace cohort::dataset {
namespace {

constexpr int kDigitBits = 8;
constexpr std::size_t kKeysHandedOn = 1 << 16;
constexpr std::size_t kMinKeys = 1 << 10, kMinWindow = 1 << 9;  // keys
constexpr std::size_t kMaxWindow = 1 << 20;
constexpr std::size_t kWriteAtOnce = 1 << 22;

// A sorted run of the temporary file, through a window of some of its keys.
template <typename Key>
class RunReader {
 public:
  RunReader(const base::TemporaryFile& file, int64_t offset, std::size_t count, std::size_t window)
      : file_(&file), offset_(offset), left_(count), window_(window) {
    refill();
  }
  bool ends() const noexcept { return at_ == keys_.size(); }
  Key key() const noexcept { return keys_[at_]; }
  void advance() {
    if (++at_ == keys_.size()) refill();
  }

 private:
  void refill() {
    keys_.resize(std::min(left_, window_));
    at_ = 0;
    file_->read(offset_, keys_.data(), keys_.size() * sizeof(Key));
    offset_ += static_cast<int64_t>(keys_.size() * sizeof(Key));
    left_ -= keys_.size();
  }
  const base::TemporaryFile* file_;
  int64_t offset_;
  std::size_t left_, window_, at_ = 0;
  std::vector<Key> keys_;  // [window]
};

// Merges runs, some of whose keys it hands out at a time.
template <typename Key>
class RunMerger {
 public:
  // unique: equal keys come once.
  RunMerger(std::vector<RunReader<Key>> runs, bool unique) : runs_(std::move(runs)), unique_(unique) {
    for (std::size_t run = 0; run < runs_.size(); ++run) firsts_.push_back({runs_[run].key(), run});
    std::ranges::sort(firsts_);
  }

  // The next keys, kKeysHandedOn of them unless these are the last; none at the end.
  void next(std::vector<Key>& keys) {
    keys.clear();
    while (!firsts_.empty() && keys.size() < kKeysHandedOn) {
      First& first = firsts_.front();
      if (!unique_ || last_ != first.key) keys.push_back(first.key);
      last_ = first.key;
      RunReader<Key>& run = runs_[first.run];
      run.advance();
      if (!run.ends()) {
        first.key = run.key();
      } else {
        first = firsts_.back();
        firsts_.pop_back();
      }
      sink_front();
    }
  }

 private:
  struct First {
    Key key;
    std::size_t run;
    auto operator<=>(const First&) const = default;
  };

  // Makes a heap again of one whose front is new.
  void sink_front() {
    for (std::size_t at = 0, child = 1; child < firsts_.size(); at = child, child = 2 * child + 1) {
      if (child + 1 < firsts_.size() && firsts_[child + 1].key < firsts_[child].key) ++child;
      if (firsts_[at].key <= firsts_[child].key) return;
      std::swap(firsts_[at], firsts_[child]);
    }
  }

  std::vector<RunReader<Key>> runs_;
  std::vector<First> firsts_;  // of the keys that are left of each run: a heap, the least in front
  bool unique_;
  std::optional<Key> last_;
};

// The bits in which keys differ.
template <typename Key>
Key differing_bits(std::span<const Key> keys) {
  Key bits = 0;
  const Key first = keys.front();
  const auto count = static_cast<int64_t>(keys.size());
#pragma omp parallel
  {
    Key own = 0;
#pragma omp for nowait
    for (int64_t i = 0; i < count; ++i) own |= keys[static_cast<std::size_t>(i)] ^ first;
#pragma omp critical
    bits |= own;
  }
  return bits;
}

int lowest_bit(uint64_t bits) { return std::countr_zero(bits); }
int lowest_bit(WideKey bits) {
  const auto low = static_cast<uint64_t>(bits);
  return low != 0 ? lowest_bit(low) : 64 + lowest_bit(static_cast<uint64_t>(bits >> 64));
}

base::Mapping buffer_of(std::size_t bytes) {
  return base::Mapping::zeros(bytes, "--memory", " to sort in", "give less: what does not fit is sorted on disk");
}

}  // namespace

template <typename Key>
std::span<Key> sort_keys(std::span<Key> keys, std::span<Key> scratch, const std::stop_token& stop) {
  base::require(scratch.size() == keys.size(), "scratch of as many elements as there are keys");
  if (keys.empty()) return keys;
  for (Key bits = differing_bits<Key>(keys); bits != 0;) {
    if (stop.stop_requested()) throw Interrupted();
    const int shift = lowest_bit(bits);
    base::sort_by_digit<kDigitBits, Key>(keys, scratch, shift);
    std::swap(keys, scratch);
    bits &= ~(((Key{1} << kDigitBits) - 1) << shift);
  }
  return keys;
}

template <typename Key>
BasicKeySorter<Key>::BasicKeySorter(std::filesystem::path folder, std::size_t memory_bytes, bool unique)
    : folder_(std::move(folder)),
      capacity_(std::max(kMinKeys, memory_bytes / (2 * sizeof(Key)))),
      unique_(unique),
      keys_(buffer_of(capacity_ * sizeof(Key))),
      scratch_(buffer_of(capacity_ * sizeof(Key))) {}

template <typename Key>
std::span<Key> BasicKeySorter<Key>::room(std::size_t wanted, std::size_t least, const std::stop_token& stop) {
  if (capacity_ - count_ < least) {
    sort(stop);
    if (count_ > capacity_ / 2) write_run(stop);  // fewer are left when most were equal: more fit beside them
  }
  return {keys() + count_, std::min(wanted, capacity_ - count_)};
}

template <typename Key>
void BasicKeySorter<Key>::sort(const std::stop_token& stop) {
  const std::span<Key> scratch(reinterpret_cast<Key*>(scratch_.data()), count_);
  const auto sorted = sort_keys(std::span(keys(), count_), scratch, stop);
  if (sorted.data() != keys()) std::swap(keys_, scratch_);
  if (unique_) count_ = static_cast<std::size_t>(std::unique(keys(), keys() + count_) - keys());
}

template <typename Key>
void BasicKeySorter<Key>::write_run(const std::stop_token& stop) {
  if (!file_) file_.emplace(folder_);
  runs_.push_back({file_->bytes(), count_});
  for (std::size_t first = 0; first < count_; first += kWriteAtOnce) {
    if (stop.stop_requested()) throw Interrupted();
    file_->append(keys() + first, std::min(kWriteAtOnce, count_ - first) * sizeof(Key));
  }
  count_ = 0;
}

template <typename Key>
void BasicKeySorter<Key>::merge(const Use& use, const std::stop_token& stop) {
  sort(stop);
  scratch_ = {};
  if (!runs_.empty()) {
    if (count_ > 0) write_run(stop);
    keys_ = {};
    merge_runs(use, stop);
  }
  for (std::size_t first = 0; first < count_; first += kKeysHandedOn) {
    if (stop.stop_requested()) throw Interrupted();
    use({keys() + first, std::min(kKeysHandedOn, count_ - first)});
  }
  count_ = 0;
  runs_.clear();
  file_.reset();
}

template <typename Key>
void BasicKeySorter<Key>::merge_runs(const Use& use, const std::stop_token& stop) {
  const std::size_t window = std::clamp(capacity_ / runs_.size(), kMinWindow, kMaxWindow);
  std::vector<RunReader<Key>> readers;
  for (const Run& run : runs_) readers.emplace_back(*file_, run.offset, run.count, window);
  RunMerger<Key> merger(std::move(readers), unique_);
  std::vector<Key> keys, following;
  merger.next(keys);
  while (!keys.empty()) {
    if (stop.stop_requested()) throw Interrupted();
    auto merged = std::async(std::launch::async, [&] { merger.next(following); });
    use(keys);
    merged.get();
    std::swap(keys, following);
  }
}

template std::span<uint64_t> sort_keys(std::span<uint64_t>, std::span<uint64_t>, const std::stop_token&);
template std::span<WideKey> sort_keys(std::span<WideKey>, std::span<WideKey>, const std::stop_token&);
template class BasicKeySorter<uint64_t>;
template class BasicKeySorter<WideKey>;

}  // namespace cohort::dataset
