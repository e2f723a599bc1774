// Encoded feature rows of which each machine of the run keeps a part: those of others are asked for when a batch needs
// them, this machine's own are read from its disk where its memory does not hold them.
//
// Nobody has to ask in an order, or as often as another: a machine's RowServer answers whoever asks. Threads that read
// the disk wait for no other machine, so that two machines that read each other's rows do not wait for each other.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "cache/disk_rows.h"
#include "cache/far_rows.h"
#include "cache/remote/row_peers.h"

namespace cohort::cache {

class RemoteRows final : public FarRows {
 public:
  // `rows`: all machines have this file; how long each row is, is found there. `table`: their number among the node
  // types. `own`: of the same file, with other threads; null: this machine's own rows are not asked for.
  RemoteRows(std::shared_ptr<const RowFile> rows, uint32_t table, std::shared_ptr<RowPeers> peers,
             std::shared_ptr<ReadThreads> threads, std::shared_ptr<const DiskRows> own = nullptr);

  FarFetch fetch(std::span<const int64_t> ids, bool plane_a, TakeRow take) const override;
  // Rows of others are received where they are to be; a fetch that is given up is over when the replies to requests
  // that were sent have come, or have not come for too long.
  StagedFetch stage(std::span<const uint32_t> ids, bool plane_a, const StageBuffer& buffer) const override;

 private:
  class Job;
  class Requests;
  FarFetch start(Requests&& requests, bool plane_a, TakeRow take) const;

  uint32_t table_;
  std::shared_ptr<RowPeers> peers_;
  std::shared_ptr<ReadThreads> threads_;
  std::shared_ptr<const DiskRows> own_;
};

// Memory in which a thread receives rows of this table that are not staged.
int64_t reply_buffer_bytes(const ibp::EncodedRef& rows);

}  // namespace cohort::cache
