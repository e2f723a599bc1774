#include "channel/descriptor_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/format.h"
#include "base/process.h"
#include "channel/wait.h"

namespace cohort::channel {
namespace {

constexpr const char* kName = "descriptors";
constexpr int64_t kLimitUs = 30'000'000;

// A socket's path may have 107 bytes, a folder's more: it is named by its number.
struct Address {
  explicit Address(const std::filesystem::path& folder) : folder_(open(folder.c_str(), O_PATH | O_CLOEXEC)) {
    if (!folder_) base::fail_errno(folder.string(), "the channel's folder", errno);
    name.sun_family = AF_UNIX;
    base::format("/proc/self/fd/{}/{}", folder_.get(), kName).copy(name.sun_path, sizeof name.sun_path - 1);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
  sockaddr_un name{};

 private:
  base::FileDescriptor folder_;
};

base::FileDescriptor make_socket(const std::filesystem::path& folder, int more_flags) {
  base::FileDescriptor made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | more_flags, 0));
  if (!made) base::fail_errno(folder.string(), "a socket for the memory of a GPU", errno);
  return made;
}

// A message of one tag, with room for one descriptor beside it.
class Packet {
 public:
  Packet() {
    header_.msg_iov = &content_;
    header_.msg_iovlen = 1;
    header_.msg_control = room_.data();
    header_.msg_controllen = room_.size();
  }
  Packet(const Packet&) = delete;
  Packet& operator=(const Packet&) = delete;

  void put(int descriptor) {
    cmsghdr* part = CMSG_FIRSTHDR(&header_);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(part), &descriptor, sizeof descriptor);
  }
  // What has come with a message of so many bytes.
  base::FileDescriptor take(ssize_t bytes) {
    if (header_.msg_flags & MSG_CTRUNC) {
      throw base::Error({"GPU memory of the sampler", "room for one more open file", "as many as are allowed",
                         "raise the limit of open files: ulimit -n"});
    }
    const cmsghdr* part = CMSG_FIRSTHDR(&header_);
    const bool has_descriptors = part && part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS;
    base::require(has_descriptors, "a descriptor in each message of the sampler");
    int number = -1;
    std::memcpy(&number, CMSG_DATA(part), sizeof number);
    base::FileDescriptor descriptor(number);
    base::require(part->cmsg_len == CMSG_LEN(sizeof number), "one descriptor in each message of the sampler");
    const bool is_whole = bytes == ssize_t{sizeof tag} && !(header_.msg_flags & MSG_TRUNC);
    base::require(is_whole, "one tag in each message of the sampler");
    return descriptor;
  }
  msghdr* header() { return &header_; }

  DescriptorTag tag;

 private:
  iovec content_{&tag, sizeof tag};
  alignas(cmsghdr) std::array<unsigned char, CMSG_SPACE(sizeof(int))> room_{};
  msghdr header_{};
};

}  // namespace

DescriptorSender::DescriptorSender(const std::filesystem::path& folder)
    : listening_(make_socket(folder, SOCK_NONBLOCK)) {
  const Address address(folder);
  if (bind(listening_.get(), address.get(), sizeof address.name) != 0 || listen(listening_.get(), 1) != 0) {
    base::fail_errno((folder / kName).string(), "a new socket", errno);
  }
}

void DescriptorSender::send(DescriptorTag tag, base::FileDescriptor descriptor) {
  waiting_.push_back({tag, std::move(descriptor)});
  send_waiting();
}

void DescriptorSender::send_waiting() {
  if (!trainer_) trainer_ = base::FileDescriptor(accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  for (; trainer_ && !waiting_.empty(); waiting_.pop_front()) {
    Packet packet;
    packet.tag = waiting_.front().tag;
    packet.put(waiting_.front().descriptor.get());
    if (sendmsg(trainer_.get(), packet.header(), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) continue;
    if (errno == EAGAIN || errno == EINTR || errno == ETOOMANYREFS) return;
    if (errno != EPIPE && errno != ECONNRESET) base::fail_errno("the trainer's socket", "to take a message", errno);
    // It has ended, which every wait for it tells.
  }
}

DescriptorReceiver::DescriptorReceiver(const std::filesystem::path& folder) : sampler_(make_socket(folder, 0)) {
  const Address address(folder);
  if (connect(sampler_.get(), address.get(), sizeof address.name) != 0) {
    base::fail_errno((folder / kName).string(), "the sampler's socket", errno);
  }
}

base::FileDescriptor DescriptorReceiver::receive(DescriptorTag tag) {
  const int64_t until = base::monotonic_us() + kLimitUs;
  while (arrived_[tag.number].generation != tag.generation) {
    pollfd readable{sampler_.get(), POLLIN, 0};
    const int64_t left_us = until - base::monotonic_us();
    if (left_us <= 0) {
      throw base::Error({base::format("memory {} of the sampler, generation {}", tag.number, tag.generation),
                         "to be handed over", base::format("nothing for {} s", kLimitUs / 1'000'000),
                         "end the run and start it again"});
    }
    if (poll(&readable, 1, static_cast<int>(left_us / 1000 + 1)) > 0) receive_one();
  }
  return std::move(arrived_[tag.number].descriptor);
}

void DescriptorReceiver::receive_one() {
  Packet packet;
  const ssize_t bytes = recvmsg(sampler_.get(), packet.header(), MSG_CMSG_CLOEXEC);
  if (bytes < 0 && errno == EINTR) return;
  if (bytes < 0 && errno != ECONNRESET) base::fail_errno("the sampler's socket", "a message", errno);
  if (bytes <= 0) throw PeerLost({"the sampler", "to hand over memory", "it has ended", "see sampler.log"});
  base::FileDescriptor descriptor = packet.take(bytes);
  arrived_[packet.tag.number] = {packet.tag.generation, std::move(descriptor)};
}

}  // namespace cohort::channel
