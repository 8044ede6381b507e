// SPDX-License-Identifier: Apache-2.0
// Recovery: brings a model's state level with what its clients were told. After an engine's death
// or a restart of plexrld the state is that of the manifest (or what a surviving engine holds);
// logged ops behind it that succeeded are run again in order, their results are not delivered
// again, then the unfinished ops follow. Loop thread only.
#pragma once

#include <map>
#include <utility>

#include "runtime/op_service.h"

namespace plexrl::runtime {

class Recovery {
 public:
  // An op that was running at this many engine deaths in a row is given up.
  static constexpr unsigned kMaxDeaths = 3;

  struct Parts {
    ModelTable& models;
    OpTable& ops;
    OpLog& log;
    FlowTable& flows;
    OpResults& results;
    OpService& service;
    Dispatcher& dispatcher;
    state::StateManager& state;
  };
  explicit Recovery(Parts parts) : parts_(parts) {}

  // plexrld starts: the model's stream and its accepted, unfinished ops as the log has them.
  [[nodiscard]] Status restore(Model& model);
  // From model.position on. Feeds the replays, then (at once without any) what waits.
  // `damage`, when it is not ok: why it is at that manifest; told when ops cannot be replayed.
  void recover(ModelId model, const Status& damage = {});
  void engine_lost(EngineId engine);
  // The last replay of the model ended, or one failed.
  void replayed(ModelId model, const Status& status);

 private:
  [[nodiscard]] std::uint64_t finished_in_log(ModelId model) const;
  [[nodiscard]] bool end_before_restart(const Model& model, std::uint64_t seq);
  [[nodiscard]] Result<std::vector<Op>> plan_replay(const Model& model) const;
  [[nodiscard]] Result<bool> needs_replay(const Model& model, std::uint64_t seq, Op* op) const;
  void note_deaths(EngineId engine);
  void withdraw_fed(ModelId model);
  void gather(ModelId model);
  void start_replay(const Model& model, std::vector<Op> replays);
  void give_up(ModelId model);
  [[nodiscard]] Status loss_of(const Model& model, const Status& why) const;
  void lose(Model& model, const Status& why);
  void feed_waiting(ModelId model);

  Parts parts_;
  std::map<std::pair<ModelId, std::uint64_t>, unsigned> replay_deaths_;
};

}  // namespace plexrl::runtime
