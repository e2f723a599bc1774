#include "cache/remote/row_peers.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/checksum.h"
#include "base/format.h"
#include "base/side_by_side.h"

namespace cohort::cache {
namespace {

constexpr auto kComesAgain = std::chrono::milliseconds(100);
constexpr const char* kPeerCure = "see the log of this machine's sampler, and the network between the machines";

}  // namespace

RowPeers::RowPeers(std::vector<MachineAddress> machines, RunIdentity identity, std::chrono::milliseconds patience)
    : machines_(std::move(machines)), identity_(std::move(identity)), patience_(patience) {
  base::require(identity_.machine >= 0 && identity_.machine < std::ssize(machines_), "this machine among all");
  for (std::size_t i = 0; i < machines_.size(); ++i) peers_.push_back(std::make_unique<Peer>());
}

int RowPeers::num_threads() const {
  return std::clamp(connections_to_each(num_machines()) * kRequestsOfConnection * (num_machines() - 1), 1,
                    kReadThreads);
}

void RowPeers::connect(std::chrono::milliseconds patience) {
  const TimeLimit limit(patience);
  for (int machine = 0; machine < num_machines(); ++machine) {
    if (machine == own()) continue;
    Peer& peer = *peers_[static_cast<std::size_t>(machine)];
    for (int i = connections_to_each(num_machines()); i > 0; --i) {
      Socket socket = greeted(machine, limit);
      const std::lock_guard lock(mutex_);
      peer.connections.push_back(std::make_unique<Connection>(std::move(socket)));
    }
  }
}

Socket RowPeers::greeted(int machine, const TimeLimit& limit) const {
  for (bool is_first = true;; is_first = false) {
    const TimeLimit of_answer(patience_);
    auto [socket, answer] = greet(machine, is_first && limit.end < of_answer.end ? limit : of_answer);
    if (answer == Answer::kWelcome) return std::move(socket);
    if (std::chrono::steady_clock::now() > limit.end) {
      socket.fail(base::format("rows within {} s", limit.seconds), "a sampler that is still loading its rows");
    }
    std::this_thread::sleep_for(kComesAgain);
  }
}

std::pair<Socket, Answer> RowPeers::greet(int machine, const TimeLimit& limit) const {
  const auto& [name, host, port] = machines_[static_cast<std::size_t>(machine)];
  Socket socket = Socket::connect(host, port, base::format("{} at {}:{}", name, host, port), kPeerCure, limit);
  const Hello hello = identity_.hello();
  socket.send(bytes_of(hello), limit);
  Welcome welcome;
  socket.receive(bytes_of(welcome), limit);
  if (welcome.magic != kHelloMagic) {
    socket.fail("a sampler of this version of cohort", "another program", "install the same version on all machines");
  }
  if (welcome.answer == Answer::kOtherRun) {
    socket.fail("a sampler of this run", "a sampler of another run", "start the run again on all machines");
  }
  if (welcome.answer == Answer::kOtherRows) {
    socket.fail("the same encoded rows as on this machine", "rows with another checksum",
                "copy the data set's folder \"prepared\" from one machine to the others");
  }
  const bool is_known = welcome.answer == Answer::kWelcome || welcome.answer == Answer::kLoading;
  if (!is_known || welcome.machine != static_cast<uint32_t>(machine)) {
    socket.fail(base::format("machine {}", machine), base::format("machine {}", welcome.machine));
  }
  return {std::move(socket), welcome.answer};
}

RowPeers::Connection* RowPeers::first_free(const Peer& peer) const {
  const auto least = std::ranges::min_element(peer.connections, {}, &Connection::num_under_way);
  if (least == peer.connections.end() || (*least)->num_under_way() == kRequestsOfConnection) return nullptr;
  return least->get();
}

void RowPeers::wait(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, const Peer& peer, int machine,
                    const TimeLimit& limit, const std::function<bool()>& ready) const {
  const bool in_time = changed.wait_until(lock, limit.end, [&] { return peer.error || ready(); });
  if (peer.error) std::rethrow_exception(peer.error);
  if (in_time) return;
  throw OtherMachineError({machines_[static_cast<std::size_t>(machine)].name,
                           base::format("an answer within {} s", limit.seconds), "no answer to earlier requests",
                           kPeerCure});
}

void RowPeers::ask(int machine, Request request, std::span<const uint32_t> ids, std::span<std::byte> rows) {
  Peer& peer = *peers_[static_cast<std::size_t>(machine)];
  request.num_rows = static_cast<uint32_t>(ids.size());
  request.number = ++num_asked_;
  try {
    exchange(peer, machine, request, ids, rows, TimeLimit(patience_));
  } catch (const base::Error&) {
    const std::lock_guard lock(mutex_);
    if (!peer.error) peer.error = std::current_exception();
    for (const std::unique_ptr<Connection>& connection : peer.connections) connection->changed.notify_all();
    peer.answered.notify_all();
    throw;
  }
}

void RowPeers::exchange(Peer& peer, int machine, const Request& request, std::span<const uint32_t> ids,
                        std::span<std::byte> rows, const TimeLimit& limit) {
  std::unique_lock lock(mutex_);
  Connection* free = nullptr;
  wait(lock, peer.answered, peer, machine, limit, [&] { return (free = first_free(peer)) != nullptr; });
  Connection& connection = *free;
  const uint64_t turn = connection.num_begun++;
  wait(lock, connection.changed, peer, machine, limit, [&] { return connection.num_sent == turn; });
  lock.unlock();
  connection.socket.send(bytes_of(request), limit, !ids.empty());
  connection.socket.send(std::as_bytes(ids), limit);
  lock.lock();
  ++connection.num_sent;
  connection.changed.notify_all();
  wait(lock, connection.changed, peer, machine, limit, [&] { return connection.num_answered == turn; });
  lock.unlock();
  receive(connection.socket, request, ids.size(), rows, limit);
  lock.lock();
  ++connection.num_answered;
  connection.changed.notify_all();
  peer.answered.notify_one();
}

void RowPeers::receive(const Socket& socket, const Request& request, std::size_t num_ids, std::span<std::byte> rows,
                       const TimeLimit& limit) const {
  while (!rows.empty()) {
    Reply reply;
    socket.receive(bytes_of(reply), limit);
    if (reply.magic != kReplyMagic || reply.number != request.number) socket.fail("a reply", "damaged bytes");
    if (reply.answer == Answer::kUnreadable) {
      std::string text(std::min(reply.bytes, kMostBytesOfText), ' ');
      socket.receive(std::as_writable_bytes(std::span(text)), limit);
      socket.fail("rows of its disk", text, "see the log of its sampler");
    }
    if (reply.answer != Answer::kWelcome) {
      socket.fail(base::format("rows of table {} from that machine", request.table), "no such rows there");
    }
    if (reply.bytes == 0 || reply.bytes > rows.size()) {
      socket.fail(base::format("{} bytes of {} rows, or some of them", rows.size(), num_ids),
                  base::format("{} bytes", reply.bytes));
    }
    const std::span<std::byte> some = rows.first(reply.bytes);
    socket.receive(some, limit);
    if (base::crc32c(some) != reply.checksum) socket.fail("rows with the checksum of the reply", "damaged rows");
    rows = rows.subspan(reply.bytes);
  }
}

double RowPeers::time_bare(int64_t num_requests) {
  std::atomic<int64_t> left = num_requests;
  const auto begin = std::chrono::steady_clock::now();
  base::side_by_side(static_cast<std::size_t>(num_threads()), [&](std::size_t) {
    std::vector<std::byte> zeros(kMostBytesOfRequest);
    for (int64_t i = --left; i >= 0; i = --left) {
      const auto other = static_cast<int>(i % (num_machines() - 1));
      ask(other < own() ? other : other + 1, {.table = kNoTable}, {}, zeros);
    }
  });
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void RowPeers::close() {
  const std::lock_guard lock(mutex_);
  for (const std::unique_ptr<Peer>& peer : peers_) {
    for (const std::unique_ptr<Connection>& connection : peer->connections) connection->socket.shut_down();
  }
}

}  // namespace cohort::cache
