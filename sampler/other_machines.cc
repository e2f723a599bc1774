#include "sampler/other_machines.h"

#include <chrono>
#include <utility>

#include "base/check.h"
#include "cache/remote/protocol.h"

namespace cohort::sampler {
namespace {

using namespace std::chrono_literals;

constexpr auto kStart = 600s;  // in which the others load what they keep; the launchers watch each other meanwhile

cache::RunIdentity identity_of(const Options& options, const GraphView& graph) {
  std::vector<ibp::EncodedRef> tables;
  for (const NodeRange& type : types_of(graph)) {
    tables.push_back(type.encoded ? type.encoded->encoded().ref : ibp::EncodedRef{});
  }
  return {options.row_owners.key, options.row_owners.own, cache::tables_digest(tables)};
}

std::vector<cache::MachineAddress> addresses_of(const RowOwners& owners) {
  std::vector<cache::MachineAddress> addresses;
  for (std::size_t i = 0; i < owners.hosts.size(); ++i) {
    addresses.push_back({owners.names[i], owners.hosts[i], owners.ports[i]});
  }
  return addresses;
}

std::chrono::milliseconds patience_of(const RowOwners& owners) {
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(owners.seconds));
}

}  // namespace

OtherMachines::OtherMachines(const Options& options, const GraphView& graph)
    : identity_(identity_of(options, graph)),
      listener_(options.row_owners.listener),
      peers_(std::make_shared<cache::RowPeers>(addresses_of(options.row_owners), identity_,
                                               patience_of(options.row_owners))) {}

void OtherMachines::share(std::vector<cache::ServedTable> tables) {
  server_ = std::make_unique<cache::RowServer>(std::move(listener_), identity_, std::move(tables), peers_->patience());
  peers_->connect(kStart);
}

void OtherMachines::leave(const std::function<bool()>& gives_up) {
  peers_->close();
  const auto end = std::chrono::steady_clock::now() + peers_->patience();
  if (server_) server_->wait_for_others([&] { return gives_up() || std::chrono::steady_clock::now() > end; });
}

}  // namespace cohort::sampler
