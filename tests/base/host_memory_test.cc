#include "base/host_memory.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <string>

#include "tests/dataset/temporary_folder.h"

namespace cohort::base {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

TEST(HostMemory, AvailableIsPlausible) {
  EXPECT_GT(available_host_bytes(), 1 << 20);
  EXPECT_LT(available_host_bytes(), int64_t{1} << 50);
}

TEST(HostMemory, AVariableStandsForWhatIsAvailable) {
  setenv("COHORT_HOST_MEMORY_BYTES", "12345", 1);
  EXPECT_EQ(available_host_bytes(), 12345);
  unsetenv("COHORT_HOST_MEMORY_BYTES");
}

class ControlGroups : public ::testing::Test {
 protected:
  void write(const std::filesystem::path& group, const std::map<std::string, std::string>& files) {
    std::filesystem::create_directories(mounted_ / group);
    for (const auto& [name, text] : files) std::ofstream(mounted_ / group / name) << text;
  }
  void write_version_2(const std::filesystem::path& group, const std::string& limit, const std::string& usage,
                       const std::string& of_files = "0") {
    const std::string parts = "anon 77\nfile 88\ninactive_file " + of_files + "\nactive_file 0\n";
    write(group, {{"memory.max", limit + "\n"}, {"memory.current", usage + "\n"}, {"memory.stat", parts}});
  }
  void write_version_1(const std::filesystem::path& group, const std::string& limit, const std::string& usage,
                       const std::string& of_files = "0") {
    const std::string parts = "inactive_file 7\ntotal_inactive_file " + of_files + "\ntotal_active_file 0\n";
    write("memory" / group,
          {{"memory.limit_in_bytes", limit + "\n"}, {"memory.usage_in_bytes", usage + "\n"}, {"memory.stat", parts}});
  }
  int64_t left(const std::string& groups) const { return control_group_bytes(groups, mounted_); }

  dataset::TemporaryFolder temporary_;
  std::filesystem::path mounted_ = temporary_.path();
};

TEST_F(ControlGroups, LeaveTheirLimitLessWhatIsInUseByOthersThanPagesOfFiles) {
  write_version_2("jobs/job-1", "64000", "24000");
  EXPECT_EQ(left("0::/jobs/job-1\n"), 40000);
  write_version_2("jobs/job-1", "64000", "60000", "50000");
  EXPECT_EQ(left("0::/jobs/job-1\n"), 54000);
  write("jobs/job-1", {{"memory.stat", "inactive_file 50000\nactive_file 8000\n"}});
  EXPECT_EQ(left("0::/jobs/job-1\n"), 62000);
  write_version_2("jobs/job-1", "1000", "1200");
  EXPECT_EQ(left("0::/jobs/job-1\n"), 0);
}

TEST_F(ControlGroups, AboveThemCountAsWell) {
  write_version_2("pod", "1000", "400");
  write_version_2("pod/box", "max", "300");
  write_version_2("pod/box/inner", "900", "100");
  EXPECT_EQ(left("0::/pod/box/inner\n"), 600);
}

TEST_F(ControlGroups, OfAContainerAreTheRootThatItSees) {
  write_version_2("", "5000", "1000");
  EXPECT_EQ(left("0::/\n"), 4000);
  EXPECT_EQ(left("0::/not/seen/from/here\n"), 4000);
}

TEST_F(ControlGroups, OfVersion1HaveOtherNames) {
  write_version_1("", "9223372036854771712", "5000");
  write_version_1("slurm/job_9", "8000", "5000", "1000");
  EXPECT_EQ(left("5:cpuset:/\n4:cpuacct,memory:/slurm/job_9\n1:name=systemd:/\n0::/\n"), 4000);
  EXPECT_GT(left("4:memory:/\n"), int64_t{1} << 60);
}

TEST_F(ControlGroups, OfBothVersionsCountBesideEachOther) {
  write_version_1("a", "8000", "0");
  write_version_2("unified/b", "7000", "0");
  EXPECT_EQ(left("3:memory:/a\n0::/b\n"), 7000);
}

TEST_F(ControlGroups, WithoutALimitLimitNothing) {
  write_version_2("job", "max", "1200");
  EXPECT_EQ(left("0::/job\n"), kNoLimit);
  EXPECT_EQ(left(""), kNoLimit);
  EXPECT_EQ(left("no such thing\n0:\n::\n"), kNoLimit);
  write("damaged", {{"memory.max", "\n"}, {"memory.current", "x"}});
  EXPECT_EQ(left("0::/damaged\n"), kNoLimit);
}

}  // namespace
}  // namespace cohort::base
