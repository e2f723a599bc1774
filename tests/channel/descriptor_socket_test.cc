#include "channel/descriptor_socket.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "channel/wait.h"
#include "tests/dataset/temporary_folder.h"

namespace cohort::channel {
namespace {

class DescriptorSocket : public ::testing::Test {
 protected:
  dataset::TemporaryFolder temporary_;
  std::filesystem::path folder_ = temporary_.path();
};

// A file in memory that holds a number.
base::FileDescriptor file_of(int number) {
  base::FileDescriptor file(memfd_create("number", MFD_CLOEXEC));
  EXPECT_EQ(write(file.get(), &number, sizeof number), ssize_t{sizeof number});
  return file;
}

int number_in(const base::FileDescriptor& file) {
  int number = -1;
  EXPECT_EQ(pread(file.get(), &number, sizeof number, 0), ssize_t{sizeof number});
  return number;
}

TEST_F(DescriptorSocket, HandsDescriptorsToTheTrainerWheneverItComes) {
  const std::filesystem::path deep = folder_ / std::string(120, 'x');  // longer than a socket's path may be
  std::filesystem::create_directory(deep);
  DescriptorSender sender(deep);
  sender.send({5, 1}, file_of(51));
  DescriptorReceiver receiver(deep);
  sender.send({7, 1}, file_of(71));
  sender.send({7, 2}, file_of(72));
  EXPECT_EQ(number_in(receiver.receive({7, 2})), 72) << "a newer one takes the place of an older one";
  EXPECT_EQ(number_in(receiver.receive({5, 1})), 51);
}

TEST_F(DescriptorSocket, ManyDescriptorsWaitForTheTrainerToTakeThem) {
  constexpr int kMany = 500;  // more than a socket has room for
  DescriptorSender sender(folder_);
  DescriptorReceiver receiver(folder_);
  for (int i = 0; i < kMany; ++i) sender.send({1, static_cast<uint64_t>(i) + 1}, file_of(i));
  for (int i = 0; i < kMany; ++i) {
    sender.send_waiting();
    ASSERT_EQ(number_in(receiver.receive({1, static_cast<uint64_t>(i) + 1})), i);
  }
}

TEST_F(DescriptorSocket, ADescriptorOfASamplerThatHasEndedDoesNotCome) {
  auto sender = std::make_unique<DescriptorSender>(folder_);
  DescriptorReceiver receiver(folder_);
  sender->send_waiting();
  sender.reset();
  EXPECT_THROW(receiver.receive({0, 1}), PeerLost);
}

TEST_F(DescriptorSocket, ATrainerThatHasEndedTakesNoDescriptors) {
  DescriptorSender sender(folder_);
  { DescriptorReceiver receiver(folder_); }
  EXPECT_NO_THROW(sender.send({0, 1}, file_of(1)));
}

}  // namespace
}  // namespace cohort::channel
