#include "channel/descriptor_socket.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <vector>

#include "channel/wait.h"
#include "tests/base/fails.h"
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

// Sends anything where a sampler would send tags with descriptors.
class BadSampler {
 public:
  explicit BadSampler(const std::filesystem::path& folder) : listening_(socket(AF_UNIX, SOCK_SEQPACKET, 0)) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::strncpy(name.sun_path, (folder / "descriptors").c_str(), sizeof name.sun_path - 1);
    EXPECT_EQ(bind(listening_.get(), reinterpret_cast<sockaddr*>(&name), sizeof name), 0) << name.sun_path;
    EXPECT_EQ(listen(listening_.get(), 1), 0);
  }
  // The first `bytes` of {place 3, generation 1, a word more}, with so many descriptors.
  void send(std::size_t bytes, int descriptors) {
    const base::FileDescriptor trainer(accept(listening_.get(), nullptr, nullptr));
    std::array<uint64_t, 3> words{3, 1, 0};
    iovec content{words.data(), bytes};
    const std::vector<int> numbers(static_cast<std::size_t>(descriptors), listening_.get());
    alignas(cmsghdr) std::array<unsigned char, 64> room{};
    msghdr message{};
    message.msg_iov = &content;
    message.msg_iovlen = 1;
    if (descriptors > 0) {
      message.msg_control = room.data();
      message.msg_controllen = CMSG_SPACE(numbers.size() * sizeof(int));
      cmsghdr* part = CMSG_FIRSTHDR(&message);
      part->cmsg_level = SOL_SOCKET;
      part->cmsg_type = SCM_RIGHTS;
      part->cmsg_len = CMSG_LEN(numbers.size() * sizeof(int));
      std::memcpy(CMSG_DATA(part), numbers.data(), numbers.size() * sizeof(int));
    }
    EXPECT_EQ(sendmsg(trainer.get(), &message, 0), static_cast<ssize_t>(bytes));
  }

 private:
  base::FileDescriptor listening_;
};

class DescriptorSocketOfABadSampler : public DescriptorSocket,
                                      public ::testing::WithParamInterface<std::pair<std::size_t, int>> {};

TEST_P(DescriptorSocketOfABadSampler, IsRefused) {
  BadSampler sampler(folder_);
  DescriptorReceiver receiver(folder_);
  sampler.send(GetParam().first, GetParam().second);
  EXPECT_TRUE(base::fails_with([&] { receiver.receive({3, 1}); }, {"descriptor_socket.cc:", "of the sampler"}));
}

// Bytes of a message, and descriptors with it: short, long, with none, with two.
INSTANTIATE_TEST_SUITE_P(Messages, DescriptorSocketOfABadSampler,
                         ::testing::Values(std::pair{8, 1}, std::pair{24, 1}, std::pair{16, 0}, std::pair{16, 2}));

}  // namespace
}  // namespace cohort::channel
