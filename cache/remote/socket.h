// Bytes between machines: every wait has an end, and every error names the machine at the other one.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>

#include "base/check.h"
#include "base/file_descriptor.h"

namespace cohort::cache {

// From now on.
struct TimeLimit {
  explicit TimeLimit(std::chrono::milliseconds limit)
      : seconds(std::chrono::duration<double>(limit).count()), end(std::chrono::steady_clock::now() + limit) {}
  double seconds;
  std::chrono::steady_clock::time_point end;
};

// Another machine does not answer, or not as it should: what has gone wrong may be known there.
class OtherMachineError final : public base::Error {
 public:
  using base::Error::Error;
};

// A connection. One thread sends and receives at a time; shut_down() is for any.
class Socket {
 public:
  // `peer`: how errors name the machine at the other end; `cure`: what they say to do.
  Socket(base::FileDescriptor connected, std::string peer, std::string cure);
  // Throws base::Error when nobody listens there, or the limit is over.
  static Socket connect(const std::string& host, int port, std::string peer, std::string cure, const TimeLimit& limit);

  // All of the bytes. Throw base::Error when the connection ends before, or the limit is over.
  // Bytes that more follow may wait for them, so that the other end is woken once.
  void send(std::span<const std::byte> bytes, const TimeLimit& limit, bool more_follow = false) const;
  void receive(std::span<std::byte> bytes, const TimeLimit& limit) const;
  // Waits without a limit until there is something to receive; false: the connection has ended.
  bool awaits_bytes() const;
  // The other end sees that no more bytes come.
  void ends_sending() const noexcept;
  // Both ends see the connection's end.
  void shut_down() const noexcept;
  // The error of an answer that is no answer; `cure`: in place of that of the connection.
  [[noreturn]] void fail(const std::string& expected, const std::string& found, const std::string& cure = {}) const;

 private:
  void wait(short events, const TimeLimit& limit) const;
  [[noreturn]] void fail_ended(int error) const;

  base::FileDescriptor file_;
  std::string peer_, cure_;
};

}  // namespace cohort::cache
