#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "ibp/ibp.h"
#include "tests/ibp/rows.h"

namespace cohort::ibp {
namespace {

double saved_percent(const RowTable& rows, const Profile& profile) {
  return 100.0 * (1 - mean_row_bytes(rows, profile) / rows.row_bytes());
}

TEST(Fit, TakesTheCodecForTheContent) {
  const auto codec_for = [](Content content, Dtype dtype, uint32_t num_columns) {
    return name_of(fit(make_rows(content, dtype, num_columns, 250).table).profile.codec);
  };
  EXPECT_EQ(codec_for(Content::kDense, Dtype::kFloat32, 256), "exponent");
  EXPECT_EQ(codec_for(Content::kDense, Dtype::kBfloat16, 1024), "layers");
  EXPECT_EQ(codec_for(Content::kDense, Dtype::kFloat16, 512), "layers");
  EXPECT_EQ(codec_for(Content::kDense, Dtype::kBfloat16, 128), "exponent") << "as few lines, and decoded faster";
  EXPECT_EQ(codec_for(Content::kConstant, Dtype::kFloat32, 2000), "sparse");
  EXPECT_EQ(codec_for(Content::kNoise, Dtype::kFloat32, 256), "raw");
  EXPECT_EQ(codec_for(Content::kFew, Dtype::kFloat32, 256), "dictionary");
  for (const uint32_t columns : {16, 32, 48}) {
    EXPECT_EQ(codec_for(Content::kDense, Dtype::kFloat32, columns), "raw") << "as many lines, in as much memory";
  }
}

TEST(Fit, SaysWhy) {
  const Fit result = fit(make_rows(Content::kDense, Dtype::kFloat32, 256, 500).table);
  EXPECT_EQ(result.sample_rows, 500);
  EXPECT_EQ(result.candidates.size(), 4u);
  EXPECT_EQ(result.why.rfind("exponent: fewest 128-byte lines", 0), 0u) << result.why;
  const Fit asked = fit(make_rows(Content::kDense, Dtype::kFloat32, 256, 500).table, {.codec = "invariant"});
  EXPECT_EQ(asked.why.find("fewest"), std::string::npos) << asked.why;
  EXPECT_EQ(asked.why.rfind("invariant: ", 0), 0u) << asked.why;
}

TEST(Fit, HeldOutRowsSaveAsMuch) {
  const Rows rows = make_rows(Content::kDense, Dtype::kFloat32, 128, 10000);
  for (const char* codec : {"exponent", "invariant"}) {
    const Profile whole = fit(rows.table, {.codec = codec, .sample = 1.0}).profile;
    const Profile tenth = fit(rows.table, {.codec = codec, .sample = 0.1, .min_sample = 1}).profile;
    EXPECT_NEAR(saved_percent(rows.table, whole), saved_percent(rows.table, tenth), 0.2) << codec;
  }
}

// Rows of one page each that cannot be read. A read opens its page, closes the one before and is counted, so that going
// over the rows once more counts each of them once more.
class CountedPages {
 public:
  static constexpr std::size_t kPageBytes = 4096;
  explicit CountedPages(const Rows& rows) : counts(rows.bytes.size() / kPageBytes), bytes_(rows.bytes.size()) {
    void* pages = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    base::require(pages != MAP_FAILED, "pages for a table");
    begin_ = static_cast<std::byte*>(pages);
    std::memcpy(pages, rows.bytes.data(), bytes_);
    mprotect(pages, bytes_, PROT_NONE);
    active_ = this;
    struct sigaction action {};
    action.sa_sigaction = [](int, siginfo_t* info, void*) { active_->open(static_cast<std::byte*>(info->si_addr)); };
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &before_);
  }
  ~CountedPages() {
    sigaction(SIGSEGV, &before_, nullptr);
    munmap(begin_, bytes_);
  }
  const void* data() const { return begin_; }
  std::vector<int> counts;  // reads of each page

 private:
  void open(const std::byte* address) {
    if (address < begin_ || address >= begin_ + bytes_) std::abort();  // another fault than ours
    if (opened_) mprotect(opened_, kPageBytes, PROT_NONE);
    const auto page = static_cast<std::size_t>(address - begin_) / kPageBytes;
    ++counts[page];
    opened_ = begin_ + page * kPageBytes;
    mprotect(opened_, kPageBytes, PROT_READ);
  }
  static inline CountedPages* active_ = nullptr;
  std::byte* begin_ = nullptr;
  std::byte* opened_ = nullptr;
  std::size_t bytes_;
  struct sigaction before_ {};
};

TEST(Fit, ReadsEachSampledRowOnceAndNoOther) {
  const Rows rows = make_rows(Content::kDense, Dtype::kFloat32, CountedPages::kPageBytes / 4, 300);
  CountedPages pages(rows);
  const FitOptions options{.sample = 0.5, .min_sample = 1};  // every codec, and the sweep of thresholds
  const Fit result = fit({pages.data(), 300, Dtype::kFloat32, CountedPages::kPageBytes / 4}, options);
  EXPECT_EQ(result.profile, fit(rows.table, options).profile);
  EXPECT_EQ(result.candidates.size(), 4u);
  EXPECT_EQ(std::count(pages.counts.begin(), pages.counts.end(), 1), 150);
  EXPECT_EQ(std::count(pages.counts.begin(), pages.counts.end(), 0), 150);
}

TEST(Fit, SlotsTouchFewerLinesThanPackedRows) {
  const Rows rows = make_rows(Content::kDense, Dtype::kFloat32, 128, 3000);
  const Fit result = fit(rows.table, {.codec = "exponent"});
  EXPECT_EQ(result.profile.slot_bytes, 448u);
  EXPECT_NEAR(result.candidates[0].lines_per_row, (4 + 14) / 5.0, 0.01);
}

TEST(Profile, EveryFlippedBitAndEveryCutIsAnError) {
  const Rows rows = make_rows(Content::kDense, Dtype::kFloat32, 5, 50);
  std::vector<Profile> profiles = all_profiles(rows.table);
  profiles.push_back(fit(rows.table, {.codec = "planes"}).profile);
  for (const Profile& profile : profiles) {
    const std::vector<std::byte> good = to_bytes(profile);
    for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
      std::vector<std::byte> bad = good;
      bad[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
      EXPECT_THROW(profile_from(bad, "bytes"), base::Error) << bit;
    }
    for (std::size_t size = 0; size < good.size(); ++size) {
      EXPECT_THROW(profile_from(std::span(good).first(size), "bytes"), base::Error) << size;
    }
  }
}

TEST(Profile, ImpossibleFieldsAreErrors) {
  const Rows rows = make_rows(Content::kDense, Dtype::kFloat32, 5, 50);
  Profile exponent = fit(rows.table, {.codec = "exponent"}).profile;
  exponent.base[3] = 255;
  EXPECT_THROW(validate(exponent), base::Error);
  Profile invariant = fit(rows.table, {.codec = "invariant"}).profile;
  invariant.value[0] = ~invariant.mask[0] & 1 ? 1 : ~uint64_t{0};
  EXPECT_THROW(validate(invariant), base::Error);
  Profile sparse = fit(rows.table, {.codec = "sparse"}).profile;
  sparse.value_bits = 33;
  EXPECT_THROW(validate(sparse), base::Error);
  sparse.value_bits = 32;
  EXPECT_NO_THROW(validate(sparse));
  sparse.chunk_bytes = 4;  // found by the fuzzer: tables of a codec that the profile does not have
  EXPECT_THROW(validate(sparse), base::Error);
  EXPECT_THROW(profile_from(to_bytes(sparse), "bytes"), base::Error);
  Profile empty;
  empty.codec = Codec::kInvariant;
  empty.chunk_bytes = 4;
  EXPECT_THROW(profile_from(to_bytes(empty), "bytes"), base::Error) << "no columns, and so no tables";
  Profile slots = fit(rows.table).profile;
  slots.slot_bytes = 12;
  EXPECT_THROW(validate(slots), base::Error);
}

}  // namespace
}  // namespace cohort::ibp
