// SPDX-License-Identifier: Apache-2.0
// OpService: accepts ops, keeps each model's order and exactly-once promise, and takes the results.
// doc/service.md describes the life of an op. Handlers may be called from inside submit(). Loop
// thread only.
#pragma once

#include <map>
#include <string>

#include "runtime/dispatcher.h"
#include "runtime/model_flow.h"
#include "runtime/op_check.h"
#include "runtime/op_results.h"
#include "runtime/sampling_groups.h"

namespace plexrl::runtime {

struct SubmitRequest {
  TenantId tenant;
  SessionId session;
  std::uint64_t request_id = 0;
  std::string client;
  wire::SubmitOpT submit;
  UniqueFd fd;
  OpHandler handler;
  Status refusal{};  // of a training op: what its sender finds wrong with it; uses its number up
};

using FlowTable = std::map<ModelId, ModelFlow>;

class OpService final : public DispatchListener {
 public:
  struct Parts {
    ModelTable& models;
    OpTable& ops;
    OpLog& log;
    FlowTable& flows;
    OpResults& results;
    Accounting& accounting;
    std::uint64_t chunk_bytes;  // KV is given in whole chunks
  };
  explicit OpService(Parts parts)
      : parts_(parts), groups_(parts.ops, [this](const Op& leader, std::uint64_t kv_bytes) {
          // Half of the device at most: others are not put out for what plexrld has put together.
          OpSize size;
          size.kv_bytes = 2 * kv_bytes;
          const Model* const model = parts_.models.find(leader.model);
          return model != nullptr && check_capacity(*model, size).ok();
        }) {}
  // Before the first op; they know each other.
  void connect(Dispatcher& dispatcher, state::StateManager& state) {
    dispatcher_ = &dispatcher;
    state_ = &state;
  }

  void submit(SubmitRequest request);
  // For who has a training op's number only: whether it was accepted, in its turn or before, and
  // its outcome, once it has one. await() needs an op that is known.
  [[nodiscard]] bool knows(ModelId model, std::uint64_t seq);
  void await(ModelId model, std::uint64_t seq, Waiter waiter);
  // What the model's training ops up to now made known is on disk, except that those whose turn
  // has not come are not kept.
  void when_kept(ModelId model, OpLog::Kept kept) { parts_.log.when_kept(model, std::move(kept)); }
  // The op ends as CANCELLED unless it is too late for that.
  void cancel(SessionId session, std::uint64_t request_id);
  // Its sampling ops that nobody else waits for are cancelled; training goes on.
  void session_closed(SessionId session);
  // Everything of the model that the engine has not seen ends with `why`. Replays go on: they make
  // the state that the next ops count on.
  void drop_ops(ModelId model, const Status& why);
  // That state is given up.
  void drop_replays(ModelId model);

  // Feeds the training ops that may go now.
  void pump(ModelId model);
  void feed(Op& op);
  // Generate ops of the model that were to go together are by themselves again; nothing of it runs.
  void ungroup(ModelId model) { groups_.forget(model); }
  // An op of the stream ends: recorded, told, and the next ones may go.
  void end_training(Op& op, OpOutcome outcome, std::uint64_t tokens);
  void end_sampling(Op& op, OpOutcome outcome, std::uint64_t tokens);
  void end(Op& op, const Status& why);
  // The last replay of a model ended (ok), or one failed.
  void set_replay_handler(std::function<void(ModelId, const Status&)> handler) {
    replayed_ = std::move(handler);
  }
  void set_rollback_handler(std::function<void(ModelId, const Status&)> handler) {
    rollback_ = std::move(handler);
  }
  void set_gone_handler(std::function<void(ModelId)> handler) { gone_ = std::move(handler); }

  void op_started(Op& op) override;
  void op_ended(OpId op, Result<wire::EngineOpDoneT> result) override;
  void model_committed(ModelId model, const state::Position& position) override;
  void commit_ended(ModelId model, const Status& why) override;
  void model_unusable(ModelId model, const Status& why) override;
  void model_rolled_back(ModelId model, const Status& why) override { rollback_(model, why); }
  void model_gone(ModelId model) override;

 private:
  void submit_training(SubmitRequest request, Model& model, Status refusal, OpSize size);
  void submit_sampling(SubmitRequest request, Model& model, const OpSize& size);
  void repeat_result(const SubmitRequest& request);
  [[nodiscard]] Status check_version(const Model& model, std::uint64_t version) const;
  [[nodiscard]] Status check_capacity(const Model& model, const OpSize& size) const;
  [[nodiscard]] Op& add_op(SubmitRequest request, const OpSize& size);
  void accept(Op& op);
  void loss_told(ModelId model);
  void replay_ended(Op& op, const Result<wire::EngineOpDoneT>& result);
  void applied(Op& op, const wire::EngineOpDoneT& done);
  // Sampling that nobody waits for any more is cancelled.
  void drop_unwanted(OpId op);
  void end_group(Op& leader, wire::EngineOpDoneT done);
  // These, and the next group.
  void feed_sampling(ModelId model, const std::vector<OpId>& again);
  void want_commit(ModelId model);
  void release_loads(ModelId model, std::uint64_t applied_seq);

  Parts parts_;
  SamplingGroups groups_;
  Dispatcher* dispatcher_ = nullptr;
  state::StateManager* state_ = nullptr;
  std::function<void(ModelId, const Status&)> replayed_;
  std::function<void(ModelId, const Status&)> rollback_;
  std::function<void(ModelId)> gone_;
  std::set<ModelId> commit_wanted_;
};

}  // namespace plexrl::runtime
