// File descriptors on their way from the sampler to the trainer: memory of GPUs is shared by them.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>

#include "base/file_descriptor.h"

namespace cohort::channel {

// What a descriptor is for: one of the sampler's memories by its number, which has had other files before.
struct DescriptorTag {
  uint64_t number = 0;
  uint64_t generation = 0;
};

// The sampler's end: a Unix socket in the channel's folder.
class DescriptorSender {
 public:
  explicit DescriptorSender(const std::filesystem::path& folder);
  // Sends it as soon as the trainer is there and takes it: now, or in a later send_waiting().
  void send(DescriptorTag tag, base::FileDescriptor descriptor);
  void send_waiting();

 private:
  struct Message {
    DescriptorTag tag;
    base::FileDescriptor descriptor;
  };
  base::FileDescriptor listening_, trainer_;
  std::deque<Message> waiting_;
};

// The trainer's end.
class DescriptorReceiver {
 public:
  explicit DescriptorReceiver(const std::filesystem::path& folder);
  // Waits for it, at most half a minute. Throws Error when it does not come, PeerLost when the sampler is gone.
  base::FileDescriptor receive(DescriptorTag tag);

 private:
  void receive_one();

  base::FileDescriptor sampler_;
  struct Arrived {
    uint64_t generation = 0;
    base::FileDescriptor descriptor;
  };
  std::map<uint64_t, Arrived> arrived_;  // by number, the newest of each
};

}  // namespace cohort::channel
