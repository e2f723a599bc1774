// On the CPU: decodes single rows, and checks a file of encoded rows without loading all of it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "ibp/ibp.h"

namespace cohort::ibp {

class ProfileTables;

// Decodes single rows at any address; any number of threads may use it at the same time.
class HostDecoder {
 public:
  explicit HostDecoder(const Profile& profile);
  // Writes row_bytes bytes to `row`; returns false if `stored` is not an encoded row.
  bool decode(const RowSpan& stored, std::byte* row) const;

 private:
  std::shared_ptr<const ProfileTables> tables_;
};

// Reads a file piece by piece and checks its structure and all checksums. Throws Error.
void verify(const std::string& path);

}  // namespace cohort::ibp
