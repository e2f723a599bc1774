// What samplers of several machines say to each other about rows: structs as they lie in memory, of machines of one
// kind (little-endian). A client says Hello and hears Welcome (or that the server still loads: it comes again), then
// sends requests; each has a reply before the next one.
//
//   Request, uint32 [num_rows] ids      ->
//   Reply, some of the stored rows      <-
//   Reply, those that follow, and so on <-
//
// Rows come in the order of the ids, each as ibp::copy_joined() has it, filled up to staged_bytes(): as they lie in a
// StageBuffer. How long each is follows from the data set, which both ends have: Hello compares it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/bits.h"
#include "ibp/ibp.h"

namespace cohort::cache {

inline constexpr uint64_t kHelloMagic = 0x3274726f686f4300;  // "\0Cohort2"
inline constexpr uint32_t kRequestMagic = 0x71657243, kReplyMagic = 0x79657243;
inline constexpr std::size_t kKeyBytes = 32;
inline constexpr uint32_t kMostRowsOfRequest = 1 << 15;
// But of a single row. A reply fits into a core's cache, where it is gathered, checked and sent; a request has several,
// because whoever asks sleeps and wakes for each.
inline constexpr int64_t kMostBytesOfReply = 1 << 17, kMostBytesOfRequest = 1 << 20;

struct Hello {
  uint64_t magic = kHelloMagic;
  uint32_t machine = 0;  // that asks
  uint32_t tables = 0;   // tables_digest()
  std::array<char, kKeyBytes> key{};
};

enum class Answer : uint32_t {
  kWelcome = 0,
  kOtherRun = 1,
  kOtherRows = 2,
  kNoSuchRow = 3,
  kLoading = 4,
  kUnreadable = 5,  // the disk has failed: the reply's bytes are what is said of it
};
inline constexpr uint32_t kMostBytesOfText = 1 << 12;

struct Welcome {
  uint64_t magic = kHelloMagic;
  uint32_t machine = 0;  // that answers
  Answer answer = Answer::kWelcome;
};

inline constexpr uint32_t kNoTable = UINT32_MAX;  // no rows of it: kMostBytesOfRequest zeros, which time the network

struct Request {
  uint32_t magic = kRequestMagic;
  uint32_t table = 0;
  uint32_t num_rows = 0;
  uint32_t plane_a = 0;  // 1: of codec planes, plane A alone
  uint64_t number = 0;   // comes back with the replies
};

struct Reply {
  uint32_t magic = kReplyMagic;
  Answer answer = Answer::kWelcome;
  uint64_t number = 0;
  uint32_t bytes = 0;     // of the rows
  uint32_t checksum = 0;  // crc32c of the rows
};

// A run's machines, as their samplers know each other.
struct RunIdentity {
  std::string key;      // [kKeyBytes], of this attempt of the run
  int machine = 0;      // this one
  uint32_t tables = 0;  // tables_digest()
  Hello hello() const;
};

// Of the rows of each node type (`num_rows` 0: none): their number, form, places and profile.
uint32_t tables_digest(std::span<const ibp::EncodedRows> tables);

using base::bytes_of;

}  // namespace cohort::cache
