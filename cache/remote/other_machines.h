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
  // `listener` listens for them: from now on they hear that this machine loads. The rest is as RowPeers has it.
  OtherMachines(std::vector<MachineAddress> machines, RunIdentity identity, base::FileDescriptor listener,
                std::chrono::milliseconds patience);

  const std::shared_ptr<RowPeers>& peers() const { return peers_; }
  // Of the rows that all machines must have.
  void expect_tables(uint32_t digest) { digest_ = digest; }
  // Gives these rows, of each node type, to the others, and waits until each of them is ready to do so. Throws
  // base::Error when one does not come.
  void share(std::vector<ServedTable> tables);
  // Gets bytes from the others for some tenths of a second. `begins` is told how many, right before it gets these.
  void measure_network(const std::function<void(int64_t bytes)>& begins);
  // Asks for no more rows, and gives them until the others ask for no more either: a machine whose trainers have ended
  // may be asked for rows of batches ahead. Ends when `gives_up`, which is asked now and then.
  void leave(const std::function<bool()>& gives_up);

 private:
  uint32_t digest_ = 0;
  std::shared_ptr<RowPeers> peers_;
  RowServer server_;
};

}  // namespace cohort::cache
