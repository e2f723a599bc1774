// Gives rows that this machine keeps in its memory to the samplers of the run's other machines.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "cache/disk_rows.h"
#include "cache/remote/protocol.h"
#include "cache/remote/socket.h"
#include "cache/row_bits.h"
#include "ibp/ibp.h"

namespace cohort::cache {

// Rows of a node type: in host memory, where row i of `rows` is the i-th of the chosen ones, and on a disk.
struct ServedTable {
  ibp::EncodedRows rows;
  RowBitsRef chosen;
  int64_t num_rows = 0;                    // of the type, those that are elsewhere too; 0: the type has no features
  std::shared_ptr<const void> keeper{};    // of the memory
  std::shared_ptr<const DiskRows> disk{};  // null: memory holds all that others may ask for
};

class RowServer {
 public:
  // `listener` listens. Until share() whoever comes hears that rows are still being loaded. `patience`: for the rest of
  // a request that has begun, and for a reply that is not taken.
  RowServer(base::FileDescriptor listener, RunIdentity identity, std::chrono::milliseconds patience);
  // Of rows that are there.
  RowServer(base::FileDescriptor listener, RunIdentity identity, std::vector<ServedTable> tables,
            std::chrono::milliseconds patience);
  // Whoever asks then sees the connection's end.
  ~RowServer();
  RowServer(const RowServer&) = delete;
  RowServer& operator=(const RowServer&) = delete;

  // To be called once: from now on these rows, of each node type, are given. `digest`: tables_digest().
  void share(uint32_t digest, std::vector<ServedTable> tables);
  // Waits until all others have ended their connections, or `gives_up`, which is asked now and then.
  void wait_for_others(const std::function<bool()>& gives_up);

 private:
  struct Client {
    explicit Client(Socket connected) : socket(std::move(connected)) {}
    Socket socket;
    std::atomic<bool> has_ended = false;
    std::thread thread;
  };
  // Of a connection, kept from request to request.
  struct Work {
    std::vector<uint32_t> ids;
    std::vector<int64_t> numbers;  // among the rows in memory; -1: on the disk
    ibp::EncodedRef stored;
    std::vector<ibp::RowSpan> spans;  // of these rows; `begin` null: on the disk
    BlockBuffer reply;                // its head, rows from kRowsAt on
    std::size_t bytes = 0;            // of these rows
  };
  void accept_all();
  void remove_ended();
  bool greets(const Socket& client) const;
  void serve(const Socket& client) const;
  bool reply(const Socket& client, const Request& request, Work& work) const;
  bool locate(const Request& request, Work& work) const;
  // Rows from `first` on, as many as a reply has; the number of the next one.
  static std::size_t gather(const ServedTable& table, bool plane_a, std::size_t first, Work& work);
  void send(const Socket& client, const Request& request, Answer answer, Work& work) const;
  void send_zeros(const Socket& client, const Request& request, Work& work) const;

  base::FileDescriptor listener_, stop_;
  RunIdentity identity_;
  std::vector<ServedTable> tables_;
  std::atomic<bool> is_ready_ = false;  // identity and tables stay as they are
  std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::list<Client> clients_;
  std::thread acceptor_;  // the last: it uses the others
};

}  // namespace cohort::cache
