// Any bytes as what a client sends to a server of rows. Byte 0: 1 greets it first, so that requests are reached.
#include <arpa/inet.h>
#include <sys/socket.h>

#include <cstring>

#include "base/check.h"
#include "tests/cache/remote/machines.h"
#include "tests/fuzz/fuzz.h"
#include "tests/ibp/rows.h"

namespace cohort::fuzz {
namespace {

constexpr int64_t kNumRows = 100;
const cache::TimeLimit kLimit(std::chrono::hours(1));

// Of rows of codec planes; every second one is there.
struct Served {
  Served() {
    const ibp::Rows made = ibp::make_rows(ibp::Content::kMixed, ibp::Dtype::kFloat32, 16, kNumRows);
    ibp::EncodedRows rows = ibp::encode(made.table, ibp::fit(made.table, {.codec = "planes"}).profile);
    identity = {cache::kKey, 0, cache::tables_digest({{rows}})};
    for (int64_t row = 0; row < kNumRows; row += 2) chosen.choose(row);
    chosen.count();
    rows.ref.num_rows = chosen.num_chosen();
    server = std::make_unique<cache::RowServer>(std::move(listener.file), identity,
                                                std::vector<cache::ServedTable>{{rows, chosen.ref(), kNumRows}, {}},
                                                std::chrono::seconds(10));
  }
  cache::Listener listener;
  cache::RunIdentity identity;
  cache::RowBits chosen{kNumRows};
  std::unique_ptr<cache::RowServer> server;
};

Served& served() {
  static Served one;
  return one;
}

std::string request(uint32_t table, bool plane_a, const std::vector<uint32_t>& ids) {
  const auto count = static_cast<uint32_t>(ids.size());
  std::string bytes =
      fuzz::bytes_of(cache::Request{.table = table, .num_rows = count, .plane_a = plane_a, .number = 5});
  for (const uint32_t id : ids) bytes += fuzz::bytes_of(id);
  return bytes;
}

// All that the server says until it ends the connection.
std::string answer_to(std::span<const std::byte> bytes) {
  const int port = served().listener.port;
  const cache::Socket client = cache::Socket::connect("127.0.0.1", port, "the server", "", kLimit);
  try {
    client.send(bytes, kLimit);
  } catch (const base::Error&) {  // it has ended the connection before all was sent
  }
  client.ends_sending();
  std::string said;
  try {
    while (client.awaits_bytes()) {
      std::byte byte{};
      client.receive(std::span(&byte, 1), kLimit);
      said.push_back(static_cast<char>(byte));
    }
  } catch (const base::Error&) {  // it has left bytes unread
  }
  return said;
}

}  // namespace

std::vector<std::string> seeds() {
  const std::string hello = fuzz::bytes_of(served().identity.hello());
  const std::string some = request(0, false, {0, 2, 98}) + request(0, true, {4}), none = request(0, false, {1}),
                    other = request(1, false, {0}), empty = request(0, false, {});
  return {std::string(1, 0) + hello + some, std::string(1, 1) + some, std::string(1, 1) + none,
          std::string(1, 1) + other, std::string(1, 1) + empty + some};
}

void run(std::span<const std::byte> input) {
  if (input.empty()) return;
  std::string bytes = (std::to_integer<int>(input[0]) & 1) ? fuzz::bytes_of(served().identity.hello()) : "";
  bytes += text_of(input.subspan(1));
  const std::string said = answer_to(std::as_bytes(std::span(bytes)));
  if (said.size() < sizeof(cache::Welcome)) return;
  cache::Welcome welcome;
  std::memcpy(&welcome, said.data(), sizeof welcome);
  demand(welcome.magic == cache::kHelloMagic, "a welcome first");
}

}  // namespace cohort::fuzz
