#include "dataset/sorting/key_sorter.h"

#include <algorithm>
#include <utility>

#include "dataset/parallel.h"

namespace cohort::dataset {
namespace {

constexpr std::size_t kKeysHandedOn = 1 << 16;
constexpr std::size_t kMinKeys = 1 << 10, kMinWindow = 1 << 9;  // keys
constexpr std::size_t kMaxWindow = 1 << 20;
constexpr std::size_t kWriteAtOnce = 1 << 22;

// A sorted run of the temporary file, through a window of some of its keys.
template <typename Key>
class RunReader {
 public:
  RunReader(const TemporaryFile& file, int64_t offset, std::size_t count, std::size_t window)
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
  const TemporaryFile* file_;
  int64_t offset_;
  std::size_t left_, window_, at_ = 0;
  std::vector<Key> keys_;  // [window]
};

// The runs as a tree of matches: each inner node keeps its loser, so that the next key costs one match a level.
template <typename Key>
class LoserTree {
 public:
  explicit LoserTree(std::vector<RunReader<Key>> runs) : runs_(std::move(runs)), losers_(runs_.size()) {
    winner_ = runs_.size() == 1 ? 0 : play(1);
  }
  bool ends() const { return runs_[winner_].ends(); }
  Key key() const { return runs_[winner_].key(); }
  void advance() {
    runs_[winner_].advance();
    for (std::size_t node = (winner_ + runs_.size()) / 2; node >= 1; node /= 2) {
      if (comes_first(losers_[node], winner_)) std::swap(losers_[node], winner_);
    }
  }

 private:
  // Leaf of run r is node r + number of runs; inner nodes are 1, 2, ...
  std::size_t play(std::size_t node) {
    if (node >= runs_.size()) return node - runs_.size();
    const std::size_t left = play(2 * node), right = play(2 * node + 1);
    const bool left_wins = comes_first(left, right);
    losers_[node] = left_wins ? right : left;
    return left_wins ? left : right;
  }
  bool comes_first(std::size_t a, std::size_t b) const {
    if (runs_[a].ends() || runs_[b].ends()) return !runs_[a].ends();
    return runs_[a].key() < runs_[b].key();
  }
  std::vector<RunReader<Key>> runs_;
  std::vector<std::size_t> losers_;  // run [runs]
  std::size_t winner_;
};

}  // namespace

template <typename Key>
BasicKeySorter<Key>::BasicKeySorter(std::filesystem::path folder, std::size_t memory_bytes, bool unique)
    : folder_(std::move(folder)),
      capacity_(std::max(kMinKeys, memory_bytes / (2 * sizeof(Key)))),
      unique_(unique),
      keys_(capacity_),
      scratch_(capacity_) {}

template <typename Key>
std::span<Key> BasicKeySorter<Key>::room(std::size_t wanted, std::size_t least, const std::stop_token& stop) {
  if (capacity_ - count_ < least) {
    sort(stop);
    if (count_ > capacity_ / 2) write_run(stop);  // fewer are left when most were equal: more fit beside them
  }
  return {keys_.get() + count_, std::min(wanted, capacity_ - count_)};
}

template <typename Key>
void BasicKeySorter<Key>::sort(const std::stop_token& stop) {
  const auto sorted = sort_keys(std::span(keys_.get(), count_), std::span(scratch_.get(), count_), stop);
  if (sorted.data() != keys_.get()) std::swap(keys_, scratch_);
  if (unique_) count_ = static_cast<std::size_t>(std::unique(keys_.get(), keys_.get() + count_) - keys_.get());
}

template <typename Key>
void BasicKeySorter<Key>::write_run(const std::stop_token& stop) {
  if (!file_) file_.emplace(folder_);
  runs_.push_back({file_->bytes(), count_});
  for (std::size_t first = 0; first < count_; first += kWriteAtOnce) {
    if (stop.stop_requested()) throw Interrupted();
    file_->append(keys_.get() + first, std::min(kWriteAtOnce, count_ - first) * sizeof(Key));
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
    use({keys_.get() + first, std::min(kKeysHandedOn, count_ - first)});
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
  LoserTree<Key> tree(std::move(readers));
  std::vector<Key> block;
  std::optional<Key> last;
  while (!tree.ends()) {
    if (stop.stop_requested()) throw Interrupted();
    block.clear();
    for (; !tree.ends() && block.size() < kKeysHandedOn; tree.advance()) {
      if (unique_ && last == tree.key()) continue;
      block.push_back(tree.key());
      last = block.back();
    }
    use(block);
  }
}

template class BasicKeySorter<uint64_t>;
template class BasicKeySorter<WideKey>;

}  // namespace cohort::dataset
