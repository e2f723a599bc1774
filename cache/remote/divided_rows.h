// Encoded feature rows of which each machine of the run keeps a part, on its disk what its memory does not hold: its
// own are read from the disk, those of others are asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "cache/disk_rows.h"
#include "cache/remote/remote_rows.h"

namespace cohort::cache {

class DividedRows final : public FarRows {
 public:
  // Of the same file. Threads that read the disk wait for no other machine, so that two machines that read each other's
  // rows do not wait for each other: `own` and `others` have different ones.
  DividedRows(std::shared_ptr<const DiskRows> own, std::shared_ptr<const RemoteRows> others);

  const std::shared_ptr<const DiskRows>& own() const { return own_; }
  FarFetch fetch(std::span<const int64_t> ids, bool plane_a, TakeRow take) const override;

 private:
  std::shared_ptr<const DiskRows> own_;
  std::shared_ptr<const RemoteRows> others_;
};

}  // namespace cohort::cache
