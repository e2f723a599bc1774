// Machines of a run in one process: each has its part of a file of encoded rows, in memory or most of it on a disk, and
// asks the others over the loopback.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "cache/plan/row_owner.h"
#include "cache/remote/remote_rows.h"
#include "cache/remote/row_server.h"
#include "cache/tiered_rows.h"

namespace cohort::cache {

inline const std::string kKey(kKeyBytes, 'k');

// A socket that listens on a free port of the loopback.
struct Listener {
  Listener() : file(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    base::require(::bind(file.get(), any, bytes) == 0 && ::listen(file.get(), 64) == 0 &&
                      ::getsockname(file.get(), any, &bytes) == 0,
                  "a socket that listens");
    port = ntohs(address.sin_port);
  }
  Socket accept() const {
    return {base::FileDescriptor(::accept4(file.get(), nullptr, nullptr, SOCK_CLOEXEC)), "a client", ""};
  }
  base::FileDescriptor file;
  int port = 0;
};

inline std::vector<MachineAddress> addresses_of(const std::vector<Listener>& listeners) {
  std::vector<MachineAddress> machines;
  for (const Listener& each : listeners) {
    machines.push_back({"machine " + std::to_string(machines.size()), "127.0.0.1", each.port});
  }
  return machines;
}

// All, or every third of them.
inline RowBits own_rows(int64_t num_rows, int num_machines, int machine, bool some = false) {
  RowBits own(num_rows);
  for (int64_t row = 0; row < num_rows; ++row) {
    if (owner_of(row, num_machines) == machine && (!some || row % 3 == 0)) own.choose(row);
  }
  own.count();
  return own;
}

class Machines {
 public:
  struct One {
    std::shared_ptr<RowPeers> peers;
    std::shared_ptr<const FarRows> far;
    std::shared_ptr<const TieredRows> rows;
    std::unique_ptr<RowServer> server;
  };

  // `on_disk`: two thirds of each part. `read`: how the disk of machine 1 is read.
  Machines(const std::shared_ptr<const HostRows>& mapped, int count, std::chrono::milliseconds patience,
           bool on_disk = false, const ReadFunction& read = ::pread) {
    const auto file = std::make_shared<const RowFile>(mapped);
    std::vector<Listener> listeners(static_cast<std::size_t>(count));
    const auto addresses = addresses_of(listeners);
    const uint32_t tables = tables_digest({{file->encoded}});
    for (int machine = 0; machine < count; ++machine) {
      One& one = all.emplace_back();
      const RunIdentity identity{kKey, machine, tables};
      one.peers = std::make_shared<RowPeers>(addresses, identity, patience);
      const auto threads = std::make_shared<ReadThreads>(one.peers->num_threads());
      std::shared_ptr<const DiskRows> disk;
      if (on_disk) {
        disk = std::make_shared<const DiskRows>(file, std::make_shared<ReadThreads>(4), machine == 1 ? read : ::pread);
      }
      one.far = std::make_shared<const RemoteRows>(file, 0, one.peers, threads, disk);
      one.rows = std::make_shared<const TieredRows>(one.far, own_rows(mapped->num_rows(), count, machine, on_disk));
      std::vector<ServedTable> served = {
          {one.rows->in_memory(), one.rows->chosen().ref(), one.rows->chosen().num_rows(), one.rows, disk}};
      Listener& listener = listeners[static_cast<std::size_t>(machine)];
      one.server = std::make_unique<RowServer>(std::move(listener.file), identity, std::move(served), patience);
    }
    for (One& one : all) one.peers->connect(patience);
  }

  std::vector<One> all;
};

}  // namespace cohort::cache
