// Waiting for the other process: every wait is made of short rounds that look at the stop flag and at its life.
#pragma once

#include <semaphore.h>

#include <functional>

#include "base/check.h"
#include "channel/layout.h"

namespace cohort::channel {

// The other process died or hangs; the text names it, its last stage and its error.
class PeerLost : public base::Error {
 public:
  using base::Error::Error;
};

// Writes down what this process does now.
void set_stage(Party& self, Stage stage, uint64_t batch = 0);
// Registers this process.
void enter(Party& self);
// Moves a slot to another state.
void set_state(Slot& slot, SlotState state);
void post(sem_t& semaphore);
// Leaves the reason of a failure for the others.
void leave_error(Party& self, const char* text);

// Waits until `semaphore` is posted (true), or until `stop` is set, `peer` has ended well, or `give_up` says so
// (false). Throws PeerLost when `peer` is dead, or has been in one stage for more than `limit_us` of this wait (0: no
// limit); time in which this process did not run does not count.
bool wait_for(sem_t& semaphore, const std::atomic<uint32_t>& stop, const Party& peer, const char* peer_name,
              const std::function<bool()>& give_up = {}, int64_t limit_us = 0);

// One look at the peer, as wait_for does each round; for waits that poll something else (a GPU event).
void require_alive(const Party& peer, const char* peer_name);

}  // namespace cohort::channel
