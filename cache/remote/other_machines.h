// The other machines of a run, where each keeps a part of the feature rows in its memory.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/file_descriptor.h"
#include "cache/remote/row_peers.h"
#include "cache/remote/row_server.h"

namespace cohort::cache {

class OtherMachines {
 public:
  // `listener`: where the other machines connect; until share(), they are told that this machine is still loading. The
  // other arguments are those of RowPeers.
  OtherMachines(std::vector<MachineAddress> machines, RunIdentity identity, base::FileDescriptor listener,
                std::chrono::milliseconds patience);

  const std::shared_ptr<RowPeers>& peers() const { return peers_; }
  // `digest`: of the tables of encoded rows, which must be the same on all machines.
  void expect_tables(uint32_t digest) { digest_ = digest; }
  // Starts to serve these tables, one per node type, and waits until every other machine serves its own. Throws
  // base::Error if one of them does not do so in time.
  void share(std::vector<ServedTable> tables);
  // Measures the network: fetches bytes from the other machines for some tenths of a second. Calls `begins` with the
  // number of bytes right before it fetches them.
  void measure_network(const std::function<void(int64_t bytes)>& begins);
  // Sends no more requests, and serves those of the other machines until they send none either: they may be fetching
  // rows for later batches when the trainers of this machine have ended. Returns early once `gives_up()` is true.
  void leave(const std::function<bool()>& gives_up);

 private:
  uint32_t digest_ = 0;
  std::shared_ptr<RowPeers> peers_;
  RowServer server_;
};

}  // namespace cohort::cache
