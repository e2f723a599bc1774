#include "cache/remote/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/format.h"

namespace cohort::cache {
namespace {

std::string words_of(int error) { return std::error_code(error, std::generic_category()).message(); }

int ms_until(std::chrono::steady_clock::time_point end) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
  return static_cast<int>(std::max<int64_t>(0, left.count()));
}

bool would_wait(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

Socket::Socket(base::FileDescriptor connected, std::string peer, std::string cure)
    : file_(std::move(connected)), peer_(std::move(peer)), cure_(std::move(cure)) {
  const int on = 1;  // a request waits for no other
  setsockopt(file_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Socket Socket::connect(const std::string& host, int port, std::string peer, std::string cure, const TimeLimit& limit) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0) {
    throw base::Error({std::move(peer), "the address of a machine", gai_strerror(error), std::move(cure)});
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(found, &freeaddrinfo);
  int error = 0;
  for (const addrinfo* each = found; each; each = each->ai_next) {
    base::FileDescriptor file(::socket(each->ai_family, each->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!file) {
      error = errno;
      continue;
    }
    if (::connect(file.get(), each->ai_addr, each->ai_addrlen) == 0) return {std::move(file), peer, cure};
    error = errno;
    if (error != EINPROGRESS) continue;
    pollfd polled{file.get(), POLLOUT, 0};
    if (::poll(&polled, 1, ms_until(limit.end)) == 0) error = ETIMEDOUT;
    socklen_t bytes = sizeof error;
    if (error != ETIMEDOUT) getsockopt(file.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
    if (error == 0) return {std::move(file), peer, cure};
  }
  throw OtherMachineError(
      {std::move(peer), "a connection to the sampler of this machine", words_of(error), std::move(cure)});
}

void Socket::fail(const std::string& expected, const std::string& found, const std::string& cure) const {
  throw OtherMachineError({peer_, expected, found, cure.empty() ? cure_ : cure});
}

void Socket::fail_ended(int error) const {
  fail("rows of other machines", error == 0 ? "the end of the connection: its sampler has ended" : words_of(error));
}

void Socket::wait(short events, const TimeLimit& limit) const {
  pollfd polled{file_.get(), events, 0};
  if (::poll(&polled, 1, ms_until(limit.end)) == 0) {
    fail(base::format("an answer within {} s", limit.seconds),
         "no answer: its sampler has stopped, or the network is gone");
  }
}

void Socket::send(std::span<const std::byte> bytes, const TimeLimit& limit, bool more_follow) const {
  const int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (more_follow ? MSG_MORE : 0);
  while (!bytes.empty()) {
    const ssize_t sent = ::send(file_.get(), bytes.data(), bytes.size(), flags);
    if (sent < 0 && !would_wait(errno)) fail_ended(errno == EPIPE || errno == ECONNRESET ? 0 : errno);
    if (sent < 0) wait(POLLOUT, limit);
    bytes = bytes.subspan(static_cast<std::size_t>(std::max<ssize_t>(0, sent)));
  }
}

void Socket::receive(std::span<std::byte> bytes, const TimeLimit& limit) const {
  while (!bytes.empty()) {
    const ssize_t got = ::recv(file_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got == 0) fail_ended(0);
    if (got < 0 && !would_wait(errno)) fail_ended(errno == ECONNRESET ? 0 : errno);
    if (got < 0) wait(POLLIN, limit);
    bytes = bytes.subspan(static_cast<std::size_t>(std::max<ssize_t>(0, got)));
  }
}

bool Socket::awaits_bytes() const {
  std::byte byte{};
  pollfd polled{file_.get(), POLLIN, 0};
  while (::poll(&polled, 1, -1) < 0 && errno == EINTR) {
  }
  return ::recv(file_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

void Socket::ends_sending() const noexcept { ::shutdown(file_.get(), SHUT_WR); }
void Socket::shut_down() const noexcept { ::shutdown(file_.get(), SHUT_RDWR); }

}  // namespace cohort::cache
