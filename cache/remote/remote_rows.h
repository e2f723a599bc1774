// Encoded feature rows that other machines of the run keep in their memory: asked for when a batch needs them.
//
// Nobody has to ask in an order, or as often as another: a machine's RowServer answers whoever asks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "cache/far_rows.h"
#include "cache/remote/row_peers.h"

namespace cohort::cache {

class RemoteRows final : public FarRows {
 public:
  // `rows`: all machines have this file; how long each row is, is found there. `table`: their number among the node
  // types.
  RemoteRows(std::shared_ptr<const RowFile> rows, uint32_t table, std::shared_ptr<RowPeers> peers,
             std::shared_ptr<ReadThreads> threads);

  bool is_own(int64_t row) const { return owner_of(row, peers_->num_machines()) == peers_->own(); }
  // None of `ids` is this machine's own.
  FarFetch fetch(std::span<const int64_t> ids, bool plane_a, TakeRow take) const override;

 private:
  class Job;

  uint32_t table_;
  std::shared_ptr<RowPeers> peers_;
  std::shared_ptr<ReadThreads> threads_;
};

// Memory in which a thread receives rows of this table.
int64_t reply_buffer_bytes(const ibp::EncodedRef& rows);

}  // namespace cohort::cache
