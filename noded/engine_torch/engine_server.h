// SPDX-License-Identifier: Apache-2.0
// EngineServer: plexrl-engine without its model mathematics: the protocol of engine.fbs, the memory
// commands and the ops. Survives the loss of its connection and tells the next one what it holds.
//
// Threads: this one (the protocol thread) owns all facts and never blocks for long, so pings are
// answered while an op runs; the memory thread carries out memory commands one by one, commits
// beside ops; the compute thread runs ops.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine_torch/op_board.h"

namespace plexrl::worker {

struct ServerOptions {
  std::uint64_t id = 0;
  std::string base_name;
  wire::TrainMode mode = wire::TrainMode::Lora;
  // Without a connection for so long no plexrld comes any more: the node's service was removed, or
  // its state was. Long enough for any upgrade, short enough that memory comes back by itself.
  Duration orphan_after{3600 * kSecond.ns};
};

class EngineServer final : private EngineLink::Handler {
 public:
  // `code` must live longer. `open_device` makes the backend of the attached device pool.
  EngineServer(ServerOptions options, ModelCode& code, BackendFactory open_device,
               UniqueFd listener);
  ~EngineServer() override;

  // Until EngineQuit, or UNAVAILABLE without a connection for `orphan_after`. IO when the kernel
  // refuses what it needs. What a memory command met that must succeed.
  [[nodiscard]] Status serve();

 private:
  struct Pending {
    Ticket ticket;
    std::unique_ptr<MemoryCommand> command;
  };
  struct WaitingRun {
    Ticket ticket;
    wire::EngineRunOpT request;
    std::vector<UniqueFd> fds;
    bool yield = false;  // was asked for meanwhile
  };

  void on_request(const Ticket& ticket, wire::EngineBodyUnion body,
                  std::vector<UniqueFd> fds) override;
  void on_disconnected() override;

  [[nodiscard]] bool on_memory_request(const Ticket& ticket, wire::EngineBodyUnion& body,
                                       std::vector<UniqueFd>& fds);
  [[nodiscard]] bool on_op_request(const Ticket& ticket, wire::EngineBodyUnion& body,
                                   std::vector<UniqueFd>& fds);
  void answer_status(const Ticket& ticket, const Status& status);
  void describe(const Ticket& ticket, const wire::EngineDescribeT& request);
  void run(const Ticket& ticket, wire::EngineRunOpT request, std::vector<UniqueFd> fds);
  void yield(const Ticket& ticket, std::uint64_t op);
  void drop(const Ticket& ticket, std::uint64_t op);
  void drop_yielded(const Ticket& ticket, std::uint64_t op);
  void drop_sampling_if_none_runs();
  [[nodiscard]] Status check_waiting(const wire::EngineRunOpT& request) const;
  void ping(const Ticket& ticket, const wire::EnginePingT& request);

  void enqueue(const Ticket& ticket, std::unique_ptr<MemoryCommand> command);
  void pump();
  void finish(const Status& outcome);
  // A dropped op of the model is not undone yet.
  [[nodiscard]] bool undoing(std::uint64_t model) const;
  void on_stopped();  // an op has stopped running
  void run_waiting();
  void greet_when_quiet();
  // Milliseconds until this engine counts as an orphan; negative while it has a connection.
  [[nodiscard]] int orphan_wait();
  [[nodiscard]] wire::EngineHelloT hello() const;

  ServerOptions options_;
  Inbox inbox_;
  ModelTable table_;
  EngineLink link_;
  std::deque<Pending> pending_;
  std::shared_ptr<Pending> moving_;  // the memory thread has it
  std::vector<WaitingRun> waiting_;  // until no dropped op of its model is left; not begun
  std::vector<Ticket> drop_all_;     // of sampling ops; until none of them runs
  bool quitting_ = false;
  Status broken_;  // not ok: serve() ends with it
  TimePoint alone_since_;
  OpBoard ops_;
  JobThread memory_{"px-memory"};
};

}  // namespace plexrl::worker
