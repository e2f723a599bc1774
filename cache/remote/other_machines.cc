#include "cache/remote/other_machines.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace cohort::cache {

using namespace std::chrono_literals;

namespace {

constexpr auto kStart = 600s;  // in which the others load what they keep; the launchers watch each other meanwhile

}  // namespace

OtherMachines::OtherMachines(std::vector<MachineAddress> machines, RunIdentity identity, base::FileDescriptor listener,
                             std::chrono::milliseconds patience)
    : peers_(std::make_shared<RowPeers>(std::move(machines), identity, patience)),
      server_(std::move(listener), identity, patience) {}

void OtherMachines::share(std::vector<ServedTable> tables) {
  server_.share(digest_, std::move(tables));
  peers_->expect_tables(digest_);
  peers_->connect(kStart);
}

void OtherMachines::measure_network(const std::function<void(int64_t bytes)>& begins) {
  constexpr double kLeast = 0.05, kMeasured = 0.15, kSlow = 0.5;  // seconds
  const int64_t once = peers_->num_threads();                     // a request of each
  int64_t requests = once;
  double seconds = peers_->time_bare(requests);
  for (; seconds < kLeast; seconds = peers_->time_bare(requests)) requests *= 2;
  if (seconds < kSlow) {  // several of each, as some end before others
    requests = std::max(4 * once, static_cast<int64_t>(static_cast<double>(requests) * kMeasured / seconds));
  }
  begins(requests * kMostBytesOfRequest);
  peers_->time_bare(requests);
}

void OtherMachines::leave(const std::function<bool()>& gives_up) {
  peers_->close();
  const auto end = std::chrono::steady_clock::now() + peers_->patience();
  server_.wait_for_others([&] { return gives_up() || std::chrono::steady_clock::now() > end; });
}

}  // namespace cohort::cache
