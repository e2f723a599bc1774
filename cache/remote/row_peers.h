// The connections over which a sampler asks those of the run's other machines for rows.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cache/read_threads.h"
#include "cache/remote/protocol.h"
#include "cache/remote/socket.h"

namespace cohort::cache {

// Where a machine's sampler listens for requests.
struct MachineAddress {
  std::string name{};  // as errors have it
  std::string host{};
  int port = 0;
};

// To each other machine, which serves each of them by a thread: half of a machine's cores, all machines together.
inline int connections_to_each(int num_machines,
                               int num_cores = static_cast<int>(std::thread::hardware_concurrency())) {
  return std::clamp(num_cores / 2 / std::max(1, num_machines - 1), 8, 16);
}
// Under way on each connection: a server that has answered one finds the next.
inline constexpr int kRequestsOfConnection = 2;

class RowPeers {
 public:
  // `machines`: of the run, by number. `patience`: how long to wait for a reply.
  RowPeers(std::vector<MachineAddress> machines, RunIdentity identity, std::chrono::milliseconds patience);

  // Of the rows that the others must have, in place of the identity's.
  void expect_tables(uint32_t digest) { identity_.tables = digest; }
  // Opens the connections to all others, each of which may say for so long that it is still loading. Throws base::Error
  // when one does not answer, or is of another run, or has other rows.
  void connect(std::chrono::milliseconds limit);
  // Asks for rows of a machine: fills `rows`, as long as the replies must be together. For any number of threads.
  // Throws base::Error naming the machine.
  void ask(int machine, Request request, std::span<const uint32_t> ids, std::span<std::byte> rows);
  // Seconds in which the others together send `num_requests` times kMostBytesOfRequest bytes that are no rows, over all
  // connections at once.
  double time_bare(int64_t num_requests);
  // Ends all connections, also under requests. For any thread.
  void close();

  int num_machines() const { return static_cast<int>(peers_.size()); }
  int own() const { return identity_.machine; }
  std::chrono::milliseconds patience() const { return patience_; }
  // Enough to keep all connections busy.
  int num_threads() const;

 private:
  // Requests take turns in sending, and in the same order in receiving their replies.
  struct Connection {
    explicit Connection(Socket opened) : socket(std::move(opened)) {}
    uint64_t num_under_way() const { return num_begun - num_answered; }
    Socket socket;
    uint64_t num_begun = 0, num_sent = 0, num_answered = 0;
    std::condition_variable changed;
  };
  struct Peer {
    std::vector<std::unique_ptr<Connection>> connections;
    std::exception_ptr error;  // of the first request that failed: the machine is not asked again
    std::condition_variable answered;
  };
  Socket greeted(int machine, const TimeLimit& limit) const;
  std::pair<Socket, Answer> greet(int machine, const TimeLimit& limit) const;
  Connection* first_free(const Peer& peer) const;
  // Throws the machine's error, or one of its own when `ready` is not true in time.
  void wait(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, const Peer& peer, int machine,
            const TimeLimit& limit, const std::function<bool()>& ready) const;
  void exchange(Peer& peer, int machine, const Request& request, std::span<const uint32_t> ids,
                std::span<std::byte> rows, const TimeLimit& limit);
  void receive(const Socket& socket, const Request& request, std::size_t num_ids, std::span<std::byte> rows,
               const TimeLimit& limit) const;

  std::vector<MachineAddress> machines_;
  RunIdentity identity_;
  std::chrono::milliseconds patience_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by machine
  std::mutex mutex_;                          // of what is under way
  std::atomic<uint64_t> num_asked_ = 0;
};

}  // namespace cohort::cache
