// SPDX-License-Identifier: Apache-2.0
// OpBoard: the ops that run, those that have yielded, and the result of the last one. What runs on
// the compute thread is one op, or several generate ops of adapters of the base, as one batch. An
// op that would write what a commit copies waits for the copy, one that needs what a resume still
// fills for that. Protocol thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "engine_torch/batch_unit.h"
#include "engine_torch/engine_link.h"
#include "engine_torch/held_op.h"
#include "engine_torch/job_thread.h"
#include "engine_torch/memory_command.h"

namespace plexrl::worker {

class OpBoard final : public CommitGate, public OpOwner {
 public:
  // `on_stopped` is called when an op has stopped running: a memory command may be free to go.
  OpBoard(ModelTable& table, EngineLink& link, Inbox& inbox, std::function<void()> on_stopped);
  ~OpBoard() override;  // ends the running ops at their next yield point

  void run(const Ticket& ticket, wire::EngineRunOpT request, std::vector<UniqueFd> fds);
  // Nothing happens when the op does not run.
  void yield(std::uint64_t op);
  // Drops a running op; false when it does not run. The ticket is answered when the engine holds
  // nothing of the op.
  [[nodiscard]] bool drop_running(const Ticket& ticket, std::uint64_t op);
  // Drops all sampling ops that run; nobody is answered.
  void drop_running_sampling();
  [[nodiscard]] bool runs_sampling() const noexcept;
  // Takes the yielded op out (0: all sampling ops) for an AbandonCommand; forgets the last result
  // likewise.
  [[nodiscard]] std::vector<std::unique_ptr<HeldOp>> take_yielded(std::uint64_t op);
  // Yielded ops of a model that is being forgotten.
  void forget_model(std::uint64_t model) override;
  // A memory command has ended: an op may have waited for it.
  void command_ended() { start_if_free(); }

  [[nodiscard]] bool writes_now(std::uint64_t model) const override;
  [[nodiscard]] bool has_begun_to_write(std::uint64_t model) const override;
  // One that runs; 0: none does.
  [[nodiscard]] std::uint64_t running_op() const noexcept;
  [[nodiscard]] std::uint64_t progress() const noexcept { return progress_; }
  void describe(wire::EngineHelloT& hello) const;

 private:
  struct LastResult {
    std::uint64_t op = 0;
    std::uint64_t seq = 0;
    wire::EngineBodyUnion body;
  };

  [[nodiscard]] HeldOp* find_running(std::uint64_t op) noexcept;
  [[nodiscard]] const wire::OpArgsUnion& args_of(const wire::EngineRunOpT& request) const;
  [[nodiscard]] Result<HeldModel*> check(const wire::EngineRunOpT& request) const;
  [[nodiscard]] Status check_free(const HeldModel& model, const wire::EngineRunOpT& request) const;
  [[nodiscard]] bool joins(const HeldModel& model, const wire::OpArgsUnion& args) const;
  [[nodiscard]] Status check_kv(const HeldModel& model, const wire::EngineRunOpT& request) const;
  [[nodiscard]] bool answer_known(const Ticket& ticket, const wire::EngineRunOpT& request);
  [[nodiscard]] std::unique_ptr<HeldOp> admit(wire::EngineRunOpT request,
                                              std::vector<UniqueFd> fds);
  void start_if_free();
  void start(HeldModel& model, HeldOp& op);
  void drop(HeldOp& op, const Ticket& ticket);
  void stopped(std::uint64_t number, OpOutcome outcome);
  [[nodiscard]] static wire::EngineBodyUnion reply_body(const HeldOp& op, OpOutcome outcome);

  ModelTable& table_;
  EngineLink& link_;
  Inbox& inbox_;
  std::function<void()> on_stopped_;

  std::map<std::uint64_t, std::unique_ptr<HeldOp>> running_;
  std::atomic<std::uint64_t> progress_{0};
  std::map<std::uint64_t, std::unique_ptr<HeldOp>> yielded_;
  LastResult last_;  // of an op that is no generate: those are lost with their plexrld
  ActivationOwners activations_;
  BatchUnit batch_;
  JobThread compute_{"px-compute"};
};

}  // namespace plexrl::worker
