// SPDX-License-Identifier: Apache-2.0
// EnvPool: the workers of --env-cmd (doc/environments.md is the protocol). All are served by one
// poll(2). A worker that breaks the protocol, ends or is late fails its request only; the next one
// to that place gets a fresh worker. One thread.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cli/train/env_worker.h"

namespace plexrl::cli {

class EnvPool {
 public:
  static constexpr std::uint64_t kProtocol = 1;

  struct Request {
    std::size_t worker = 0;  // below the number of workers, each once
    nlohmann::json body;     // an object
  };

  // `turn_limit`: of one request; a start may take a minute at least. Processes that leave their
  // worker's group become ours while the pool lives, so that its end is theirs.
  EnvPool(std::string command, std::size_t workers, Duration turn_limit);
  EnvPool(const EnvPool&) = delete;
  EnvPool& operator=(const EnvPool&) = delete;
  // Closes all workers, waits a little for them to end, and kills what is left.
  ~EnvPool();

  [[nodiscard]] std::size_t size() const { return places_.size(); }
  // Starts a worker, so that a command that cannot work is known at once.
  [[nodiscard]] Status check();
  // The worker said what makes no sense: the next request to it gets a fresh one.
  void replace(std::size_t worker) { drop(places_.at(worker)); }
  // The replies in the order of the requests, or why there is none: UNSUPPORTED: the worker speaks
  // another version, as all of them will; TIMEOUT, TOO_LARGE, PROTOCOL, IO.
  [[nodiscard]] std::vector<Result<nlohmann::json>> exchange(const std::vector<Request>& requests);

 private:
  struct Place {
    std::unique_ptr<EnvWorker> worker;
    std::uint64_t next_id = 1;
  };
  // A request that has not been answered yet.
  struct Open {
    std::size_t index = 0;
    Place* place = nullptr;
    bool greeting = false;  // the answer to hello is awaited
    std::uint64_t id = 0;
    TimePoint deadline{};
  };
  [[nodiscard]] Status begin(const Request& request, Open& open);
  void send(const nlohmann::json& body, Open& open);
  // The reply, nothing yet, or why there is none.
  [[nodiscard]] Result<std::optional<nlohmann::json>> look(const Request& request, Open& open);
  void wait_for(const std::vector<Open>& open) const;
  void drop(Place& place);
  void kill_strays() const;

  std::string command_;
  Duration turn_limit_;
  std::vector<Place> places_;
  int was_reaper_ = 0;
};

}  // namespace plexrl::cli
