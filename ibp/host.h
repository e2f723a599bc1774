// What hosts alone do with encoded rows: decode rows one by one, and check a file without having it in memory.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "ibp/ibp.h"

namespace cohort::ibp {

class ProfileTables;

// Decodes rows one by one, wherever each lies; for any number of threads.
class HostDecoder {
 public:
  explicit HostDecoder(const Profile& profile);
  // Writes the decoded row, row_bytes; false when it is no valid encoding.
  bool decode(const RowSpan& stored, std::byte* row) const;

 private:
  std::shared_ptr<const ProfileTables> tables_;
};

// Checks all of a file, a piece at a time: little of it is in memory at once. Throws Error.
void verify(const std::string& path);

}  // namespace cohort::ibp
