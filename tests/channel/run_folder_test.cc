#include "channel/run_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/format.h"
#include "tests/dataset/temporary_folder.h"

namespace cohort::channel {
namespace {

namespace fs = std::filesystem;

class RunFolder : public ::testing::Test {
 protected:
  // As run_folder.py makes it, with a file of each kind that a run has there.
  fs::path make(const fs::path& root, const std::string& name) {
    const fs::path folder = root / name;
    fs::create_directories(folder / "rank-1");
    fs::permissions(root, fs::perms::owner_all);
    fs::permissions(folder, fs::perms::owner_all);
    for (const char* file : {"lock", "channel", "rank-1/channel"}) std::ofstream(folder / file) << "x";
    return folder;
  }
  // Whether it is all there after remove_run_folder(`named`, or the folder itself).
  static bool stays(const fs::path& folder, const fs::path& named = {}) {
    remove_run_folder(named.empty() ? folder : named);
    if (!fs::exists(folder)) return false;
    EXPECT_TRUE(fs::exists(folder / "channel") && fs::exists(folder / "rank-1/channel"));
    return true;
  }

  dataset::TemporaryFolder temporary_;
  fs::path root_ = temporary_.path() / base::format("cohort-{}", getuid());
};

TEST_F(RunFolder, OfARunIsRemoved) {
  EXPECT_FALSE(stays(make(root_, "run-abc")));
  EXPECT_TRUE(fs::exists(root_));
}

TEST_F(RunFolder, ThatIsNotThereIsNoError) {
  make(root_, "run-abc");
  remove_run_folder(root_ / "run-other");
  remove_run_folder("");
  EXPECT_TRUE(fs::exists(root_ / "run-abc"));
}

TEST_F(RunFolder, OfAnotherNameStays) {
  EXPECT_TRUE(stays(make(root_, "results")));
  EXPECT_TRUE(stays(make(temporary_.path() / "mine", "run-abc")));
  EXPECT_TRUE(stays(make(temporary_.path() / base::format("cohort-{}", getuid() + 1), "run-abc")));
}

TEST_F(RunFolder, WithoutALockStays) {
  const fs::path folder = make(root_, "run-abc");
  fs::remove(folder / "lock");
  EXPECT_TRUE(stays(folder));
  fs::create_directory(folder / "lock");
  EXPECT_TRUE(stays(folder));
}

TEST_F(RunFolder, ThatOthersMayEnterStays) {
  const fs::path folder = make(root_, "run-abc");
  fs::permissions(folder, fs::perms::others_read, fs::perm_options::add);
  EXPECT_TRUE(stays(folder));
  fs::permissions(folder, fs::perms::owner_all);
  fs::permissions(root_, fs::perms::group_exec, fs::perm_options::add);
  EXPECT_TRUE(stays(folder));
}

TEST_F(RunFolder, BehindALinkStays) {
  const fs::path folder = make(root_, "run-abc");
  fs::create_directory_symlink(folder, root_ / "run-link");
  EXPECT_TRUE(stays(folder, root_ / "run-link"));
  EXPECT_TRUE(fs::is_symlink(root_ / "run-link"));
}

TEST_F(RunFolder, OfAnotherUserStays) {
  if (getuid() != 0) GTEST_SKIP() << "needs root, who can give files away";
  const fs::path folder = make(root_, "run-abc");
  ASSERT_EQ(chown(folder.c_str(), 12345, 12345), 0);
  EXPECT_TRUE(stays(folder));
}

}  // namespace
}  // namespace cohort::channel
