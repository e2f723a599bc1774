// One pipeline a rank: each trainer has a channel, a backend (on its own GPU) and a thread of the sampler to itself.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "cache/remote/other_machines.h"
#include "channel/publisher.h"
#include "dataset/dataset.h"
#include "sampler/backend.h"
#include "sampler/options.h"
#include "sampler/start_log.h"

namespace cohort::sampler {

class Ranks {
 public:
  // Makes the channels, not yet visible to the trainers. `options` and `data` must outlive this.
  Ranks(const Options& options, const dataset::Dataset& data);

  // Looks at every edge of the data set, builds the backends, announces the channels and serves them until every
  // trainer has ended or the run is stopped. What makes one pipeline fail ends all of them: it is left in every
  // channel, and thrown.
  void serve();

  // Ends serve() soon, but for what comes before channels are announced: that looks at no flag. Safe in a signal
  // handler.
  void stop() noexcept;
  // Whether serve() should end: the run is stopped, or a trainer has died. Safe in any thread.
  bool is_over() const;
  // The machines that may still ask for rows when serve() has ended; null: there are none.
  std::unique_ptr<cache::OtherMachines> others() { return std::move(others_); }
  bool is_stopped_while_loading() const { return !loaded_ && publishers_.front()->stop_flag().load() != 0; }

 private:
  // The CPU has no memory but the host's: the cache is planned and told of, and then everything is read from there.
  void plan_only() const;
  // Makes the channels visible.
  void announce(const std::vector<std::unique_ptr<Backend>>& backends);
  void serve_all(std::vector<std::unique_ptr<Backend>>& backends);
  // On the rank's thread, with its share of the cores.
  void serve_rank(std::size_t rank, Backend& backend);
  // In every channel, that of `first_rank` first: the launcher shows that rank's last stage.
  void leave_error(std::size_t first_rank, const char* text);

  const Options& options_;
  const dataset::Dataset& data_;
  StartLog log_;  // rank 0's channel has it
  GraphView graph_;
  std::unique_ptr<cache::OtherMachines> others_;
  std::vector<std::unique_ptr<channel::Publisher>> publishers_;  // by rank
  std::atomic<bool> loaded_ = false;
  std::mutex failure_mutex_;
  std::exception_ptr failure_;  // the first one
};

}  // namespace cohort::sampler
