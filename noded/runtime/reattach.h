// SPDX-License-Identifier: Apache-2.0
// Reattach: takes over an engine that outlived the plexrld before this one. What it holds is
// adopted, the op that it runs or has finished is brought to its end, and what nobody knows any
// more is forgotten; then it is up for the scheduler. A state with a training op in it that has no
// result (it had no time to reach the disk, and nobody was told) falls back to its manifest, and
// the op is run again. A fresh engine goes straight there. Loop thread only.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "runtime/recovery.h"

namespace plexrl::runtime {

class Reattach {
 public:
  struct Parts {
    EngineSupervisor& engines;
    ModelTable& models;
    OpTable& ops;
    OpLog& log;
    FlowTable& flows;
    OpService& service;
    Dispatcher& dispatcher;
    Recovery& recovery;
  };
  // `up` is called when the engine may be used.
  using Up = std::function<void(EngineId)>;
  Reattach(Parts parts, Up up) : parts_(parts), up_(std::move(up)) {}

  // `survivor`: it ran before this plexrld; otherwise whatever it holds is stale and is forgotten.
  void engine_ready(EngineId engine, const wire::EngineHelloT& hello, bool survivor);

 private:
  void adopt(EngineId engine, const wire::EngineHelloT& hello);
  void forget(EngineId engine, std::uint64_t wire_model);
  void drop_op(EngineId engine, std::uint64_t op, std::function<void()> then);
  void forget_parked(EngineId engine, const wire::EngineHelloT& hello);
  [[nodiscard]] bool take_finished(const wire::EngineHelloT& hello);
  void take_running(EngineId engine, OpId op);
  void running_ended(EngineId engine, OpId id, const Result<engine::Reply>& reply);
  void drop_sampling(EngineId engine);
  void open(EngineId engine);
  void open_known(EngineId engine);
  void recover(EngineId engine, ModelId model);
  [[nodiscard]] bool ahead_of_log(ModelId model, const wire::ModelHeldT& held,
                                  const wire::EngineHelloT& hello) const;
  [[nodiscard]] bool began_replay(ModelId model, const wire::ModelHeldT& held) const;
  void discard_next(EngineId engine);
  void note_yielded_training(ModelId model, std::uint64_t started_seq);
  [[nodiscard]] bool resident(const Op& op) const;

  Parts parts_;
  Up up_;
  std::set<EngineId> opened_;
  std::map<EngineId, std::vector<ModelId>> ahead_;  // to be discarded before the engine is up
  std::map<ModelId, OpId> yielded_;                 // what the engine can go on with
};

}  // namespace plexrl::runtime
