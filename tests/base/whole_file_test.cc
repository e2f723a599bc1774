#include "base/whole_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/check.h"
#include "tests/dataset/temporary_folder.h"

namespace {

// What the system calls below do in a test: each may fail, or kill the process before it does anything.
struct Faults {
  int calls_left = -1;               // until the process is killed; -1: it is not
  std::map<std::string, int> fails;  // errno, by name
  std::vector<std::string> calls;    // so far
};
Faults faults;

// 0, or the errno to fail with.
int enter(const char* call) {
  if (faults.calls_left == 0) raise(SIGKILL);
  if (faults.calls_left > 0) --faults.calls_left;
  faults.calls.emplace_back(call);
  const auto found = faults.fails.find(call);
  return errno = found == faults.fails.end() ? 0 : found->second;
}

template <typename... Args>
int call(const char* name, long number, Args... args) {
  return enter(name) != 0 ? -1 : static_cast<int>(syscall(number, args...));
}

}  // namespace

// In place of the C library's.
extern "C" {
int fsync(int file) { return call("fsync", SYS_fsync, file); }
int close(int file) {
  const bool fails = enter("close") != 0;
  const auto result = static_cast<int>(syscall(SYS_close, file));
  return fails ? errno = faults.fails["close"], -1 : result;
}
int rename(const char* from, const char* to) noexcept {
  return call("rename", SYS_renameat, AT_FDCWD, from, AT_FDCWD, to);
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  return call("renameat2", SYS_renameat2, from_folder, from, to_folder, to, flags);
}
int unlinkat(int folder, const char* name, int flags) noexcept {
  return call("unlinkat", SYS_unlinkat, folder, name, flags);
}
}

namespace cohort::base {
namespace {

namespace fs = std::filesystem;
using dataset::read_bytes, dataset::write_bytes;

constexpr const char* kOld = "the old one";
const std::string kNew(100'000, 'n');

class WholeFileTest : public testing::Test {
 protected:
  ~WholeFileTest() override { faults = {}; }

  std::set<std::string> names() const {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_)) found.insert(entry.path().filename());
    return found;
  }
  // Runs work() in processes that are killed before their first, second, ... system call, until one gets to its end.
  // Returns how many were killed; look() sees what each leaves.
  static int kill_at_each_call(const std::function<void()>& work, const std::function<void()>& look) {
    for (int calls = 0;; ++calls) {
      const pid_t child = fork();
      if (child == 0) {
        faults.calls_left = calls;
        work();
        _exit(0);
      }
      int status = 0;
      EXPECT_EQ(waitpid(child, &status, 0), child);
      look();
      if (!WIFSIGNALED(status)) return calls;
    }
  }
  void expect_refused(const fs::path& place, const std::function<void()>& work) {
    try {
      work();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.parts().place, place.string());
      EXPECT_FALSE(error.parts().found.empty());
    }
  }

  dataset::TemporaryFolder temporary_;
  fs::path folder_ = temporary_.path(), file_ = folder_ / "file";
};

TEST_F(WholeFileTest, IsOnDiskBeforeItHasItsNameAndItsFolderAfterwards) {
  write_whole(file_, kNew);
  faults.calls.clear();
  write_whole(file_, kNew);
  std::erase(faults.calls, "close");
  EXPECT_EQ(faults.calls, (std::vector<std::string>{"fsync", "rename", "fsync"}));
}

TEST_F(WholeFileTest, KilledAtAnyStepLeavesTheOldOneOrTheNewOne) {
  write_bytes(file_, kOld);
  std::set<std::string> seen;
  const int killed = kill_at_each_call([&] { write_whole(file_, kNew); },
                                       [&] {
                                         seen.insert(read_bytes(file_));
                                         if (read_bytes(file_) == kNew) write_bytes(file_, kOld);
                                       });
  EXPECT_GE(killed, 4);
  EXPECT_EQ(seen, (std::set<std::string>{kOld, kNew}));
  write_whole(file_, kNew);
  EXPECT_EQ(names(), std::set<std::string>{"file"}) << "what killed processes left is removed";
}

TEST_F(WholeFileTest, TwoWritersOfOneNameDoNotMeet) {
  WholeFile first(file_);
  first.write(std::as_bytes(std::span(kNew)));
  WholeFile second(file_);
  second.write(std::as_bytes(std::span(std::string_view("second"))));
  first.commit();
  EXPECT_EQ(read_bytes(file_), kNew);
  second.commit();
  EXPECT_EQ(read_bytes(file_), "second");
  EXPECT_EQ(names(), std::set<std::string>{"file"});
}

TEST_F(WholeFileTest, FilesOfOthersStay) {
  const std::set<std::string> others = {"file.tmp", "file.1.tmp", "file.x-01234567.tmp", "file.1-0123456.tmp", "other"};
  for (const std::string& name : others) write_bytes(folder_ / name, kOld);
  write_bytes(folder_ / "file.1-01234567.tmp", kOld);
  write_whole(file_, kNew);
  std::set<std::string> expected = others;
  expected.insert("file");
  EXPECT_EQ(names(), expected);
}

TEST_F(WholeFileTest, FailedWritesAreToldAndChangeNothing) {
  write_bytes(file_, kOld);
  for (const char* call : {"fsync", "close", "rename"}) {
    faults.fails = {{call, EDQUOT}};
    expect_refused(file_, [&] { write_whole(file_, kNew); });
    faults.fails.clear();
    EXPECT_EQ(read_bytes(file_), kOld) << call;
    EXPECT_EQ(names(), std::set<std::string>{"file"}) << call;
  }
}

TEST_F(WholeFileTest, AFullDiskIsTold) {
  write_bytes(file_, kOld);
  const auto before = signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small{1000, limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  expect_refused(file_, [&] { write_whole(file_, kNew); });
  setrlimit(RLIMIT_FSIZE, &limit);
  signal(SIGXFSZ, before);
  EXPECT_EQ(read_bytes(file_), kOld);
  EXPECT_EQ(names(), std::set<std::string>{"file"});
  const FileDescriptor full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  expect_refused("here", [&] { write_all(full, std::as_bytes(std::span(kNew)), "here"); });
}

TEST_F(WholeFileTest, WithoutAFolderNothingIsMade) {
  expect_refused(folder_ / "none/file", [&] { write_whole(folder_ / "none/file", kNew); });
}

TEST_F(WholeFileTest, ReplacesALinkAndNotItsTarget) {
  write_bytes(folder_ / "target", kOld);
  fs::create_symlink("target", file_);
  write_whole(file_, kNew);
  EXPECT_FALSE(fs::is_symlink(file_));
  EXPECT_EQ(read_bytes(file_), kNew);
  EXPECT_EQ(read_bytes(folder_ / "target"), kOld);
}

TEST_F(WholeFileTest, IsWrittenInAFolderThatIsALink) {
  fs::create_directory(folder_ / "disk");
  fs::create_directory_symlink("disk", folder_ / "link");
  write_whole(folder_ / "link/file", kNew);
  EXPECT_EQ(read_bytes(folder_ / "disk/file"), kNew);
}

class WholeFolderTest : public WholeFileTest {
 protected:
  void fill(const fs::path& folder, const std::string& text) {
    fs::create_directories(folder / "inner");
    write_bytes(folder / "a", text);
    write_bytes(folder / "inner/b", text);
  }
  // "none", or what both files hold; fails when they differ.
  std::string text_of_folder(const fs::path& folder) {
    if (!fs::exists(folder)) return "none";
    EXPECT_EQ(read_bytes(folder / "a"), read_bytes(folder / "inner/b"));
    return read_bytes(folder / "a");
  }
  void write(bool replaces) {
    WholeFolder made(out_);
    fill(made.path(), kNew);
    ASSERT_TRUE(made.commit(replaces));
  }
  fs::path out_ = folder_ / "out";
};

TEST_F(WholeFolderTest, IsOnDiskBeforeItHasItsNameAndTheFolderAboveAfterwards) {
  write(false);
  EXPECT_EQ(text_of_folder(out_), kNew);
  faults.calls.clear();
  {
    WholeFolder made(out_);
    fill(made.path(), kNew);
    faults.calls.clear();
    ASSERT_TRUE(made.commit(true));
  }
  std::erase(faults.calls, "close");
  const std::vector<std::string> first(faults.calls.begin(), faults.calls.begin() + 6);
  EXPECT_EQ(first, (std::vector<std::string>{"fsync", "fsync", "fsync", "fsync", "renameat2", "fsync"}));
  EXPECT_EQ(names(), std::set<std::string>{"out"});
}

TEST_F(WholeFolderTest, KilledAtAnyStepLeavesTheOldOneOrTheNewOne) {
  for (const bool replaces : {false, true}) {
    std::set<std::string> seen;
    const std::string before = replaces ? kOld : "none";
    if (replaces) fill(out_, kOld);
    const int killed = kill_at_each_call([&] { write(replaces); },
                                         [&] {
                                           seen.insert(text_of_folder(out_));
                                           fs::remove_all(out_);
                                           if (replaces) fill(out_, kOld);
                                         });
    EXPECT_GE(killed, 6);
    EXPECT_EQ(seen, (std::set<std::string>{before, kNew}));
    write(replaces);
    EXPECT_EQ(names(), std::set<std::string>{"out"}) << "what killed processes left is removed";
    fs::remove_all(out_);
  }
}

// As on NFS.
TEST_F(WholeFolderTest, WhereNothingIsExchangedTheOldOneIsNotLost) {
  const auto work = [&] {
    faults.fails = {{"renameat2", EINVAL}};
    WholeFolder made(out_);
    fill(made.path(), kNew);
    EXPECT_TRUE(made.commit(true));
  };
  fill(out_, kOld);
  kill_at_each_call(work, [&] {
    int whole = text_of_folder(out_) != "none";
    for (const std::string& name : names()) whole += name.ends_with(".old") && text_of_folder(folder_ / name) == kOld;
    EXPECT_GE(whole, 1);
    fs::remove_all(out_);
    fill(out_, kOld);
  });
  for (const std::string& name : names()) {
    if (name.ends_with(".old")) fs::remove_all(folder_ / name);
  }
  work();
  EXPECT_EQ(text_of_folder(out_), kNew);
  EXPECT_EQ(names(), std::set<std::string>{"out"});
  fs::remove_all(out_);
  faults.fails = {{"renameat2", EINVAL}};
  write(false);
  EXPECT_EQ(text_of_folder(out_), kNew);
}

TEST_F(WholeFolderTest, WhatHasComeInTheMeantimeIsNotReplaced) {
  WholeFolder made(out_);
  fill(made.path(), kNew);
  fill(out_, kOld);
  expect_refused(out_, [&] { EXPECT_FALSE(made.commit(false)); });
  EXPECT_EQ(text_of_folder(out_), kOld);
}

TEST_F(WholeFolderTest, SeveralProcessesBeginOnesOfOneName) {
  const auto begin_many = [&] {
    for (int i = 0; i < 2000; ++i) {
      WholeFolder begun(out_);
      if (!fs::is_directory(begun.path())) return false;
      faults.calls.clear();
    }
    return true;
  };
  const pid_t child = fork();
  if (child == 0) {
    try {
      _exit(begin_many() ? 0 : 1);
    } catch (const Error&) {
      _exit(2);
    }
  }
  EXPECT_TRUE(begin_many());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(names(), std::set<std::string>());
}

TEST_F(WholeFolderTest, FailedWritesAreToldAndChangeNothing) {
  fill(out_, kOld);
  {
    WholeFolder made(out_);
    fill(made.path(), kNew);
    faults.fails = {{"fsync", EIO}};
    EXPECT_THROW(static_cast<void>(made.commit(true)), Error);
    faults.fails.clear();
  }
  EXPECT_EQ(text_of_folder(out_), kOld);
  EXPECT_EQ(names(), std::set<std::string>{"out"});
}

TEST_F(WholeFolderTest, AStopChangesNothing) {
  std::stop_source stop;
  stop.request_stop();
  {
    WholeFolder made(out_);
    fill(made.path(), kNew);
    EXPECT_FALSE(made.commit(false, stop.get_token()));
  }
  EXPECT_EQ(names(), std::set<std::string>{});
}

TEST_F(WholeFolderTest, IsWrittenInAFolderThatIsALink) {
  fs::create_directory(folder_ / "disk");
  fs::create_directory_symlink("disk", folder_ / "link");
  out_ = folder_ / "link/out";
  write(false);
  write(true);
  EXPECT_EQ(text_of_folder(folder_ / "disk/out"), kNew);
}

TEST_F(WholeFolderTest, ReplacesALinkAndNotItsTarget) {
  fill(folder_ / "target", kOld);
  fs::create_directory_symlink("target", out_);
  write(true);
  EXPECT_FALSE(fs::is_symlink(out_));
  EXPECT_EQ(text_of_folder(out_), kNew);
  EXPECT_EQ(text_of_folder(folder_ / "target"), kOld);
}

}  // namespace
}  // namespace cohort::base
