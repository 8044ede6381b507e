// SPDX-License-Identifier: Apache-2.0
// RingClient: one job with its models: random ops, pauses, cancels; it vanishes, comes back and
// asks again for all that it was not told. Whatever it is told is compared with the Reference, in
// the order of the numbers, and what it must not be told is reported.
#pragma once

#include <deque>

#include "ring_node.h"
#include "ring_reference.h"

namespace plexrl::runtime {

struct RingAnswer {
  Status status;
  Bytes value;
  friend bool operator==(const RingAnswer& a, const RingAnswer& b) {
    return a.status.code() == b.status.code() && a.status.text() == b.status.text() &&
           a.value == b.value;
  }
};

// One model as its client knows it.
struct RingModel {
  struct Op {
    wire::OpArgsUnion args;
    std::string file;           // of a save to the store or a load
    std::uint64_t request = 0;  // under way; 0: to be sent
    TimePoint send_at;
    bool sent = false;  // at least once
    bool cancel_asked = false;
    bool asked_again = false;  // a failure may be that of a number that is free again
    bool lost_told = false;    // and not judged yet
    std::optional<RingAnswer> answer;
    // What had happened when it was first sent.
    std::uint64_t deaths = 0;
    std::uint64_t pools = 0;
    std::uint64_t closes = 0;
  };
  std::string name;
  wire::TrainMode mode = wire::TrainMode::Lora;
  std::uint64_t seed = 0;
  std::uint64_t id = 0;  // 0: not created yet
  EngineId engine;
  bool creating = false;
  std::unique_ptr<Reference> reference;

  std::map<std::uint64_t, Op> ops;  // that were not judged yet
  std::uint64_t next_seq = 1;
  std::uint64_t judged = 0;
  std::deque<std::pair<std::uint64_t, RingAnswer>> told;  // the last ones
  std::map<std::uint64_t, std::uint64_t> rewinds;         // after this number the state is of step
  bool gradients = false;                                 // as planned
  bool lost_versions = false;                             // a loss took what was published
  std::uint64_t version = 0;                              // newest that was told
  std::set<std::string> files;                            // saved, and surely so
  std::uint64_t pools_level = 0;   // pools_made() at the last op that was answered well
  std::uint64_t deaths_level = 0;  // of the engine, likewise
};

class RingClient {
 public:
  struct Parts {
    VirtualWorld& world;
    RingScript& script;
    Broken& broken;
    RingNode& node;
    std::uint64_t& sessions;  // numbers are given once
  };
  RingClient(const Parts& parts, std::uint32_t job, std::uint64_t ops);

  void begin() { act(); }
  void disconnected();                  // plexrld is gone
  void vanish();                        // it goes, and comes back later
  void finish() { finishing_ = true; }  // no new ops
  [[nodiscard]] bool idle() const;
  [[nodiscard]] bool used_up() const { return left_ == 0; }
  // Compares the state as it is with the reference; idle() again when that is done.
  void probe();
  void close();  // the job ends
  [[nodiscard]] bool closed() const { return closed_; }
  [[nodiscard]] std::uint32_t job() const { return job_; }
  [[nodiscard]] TenantId tenant() const { return tenant_; }
  [[nodiscard]] std::uint64_t answered_well() const { return answered_well_; }
  [[nodiscard]] std::uint64_t losses() const { return losses_; }
  [[nodiscard]] std::string waits_for() const;

 private:
  struct Pending {
    RingModel* model = nullptr;
    std::uint64_t seq = 0;  // 0: sampling
    bool repeat = false;    // of a number that was told before
    std::uint64_t version = 0;
    wire::OpArgsUnion args;
    std::uint64_t deaths = 0;
    std::uint64_t pools = 0;
    bool cancelled = false;
  };

  void act();
  void work();
  [[nodiscard]] bool prepared();
  void open();
  void create(RingModel& model);
  void requeue();
  void send_due();
  void new_op(RingModel& model);
  void plan(RingModel& model, RingModel::Op& op);
  void send(RingModel& model, std::uint64_t seq, RingModel::Op& op);
  void sample(RingModel& model);
  void repeat(RingModel& model);
  void cancel_some();
  void after_restart();
  void submit(Pending pending, std::uint64_t request);
  void answered(std::uint64_t request, const OpOutcome& outcome);
  void answered_training(const Pending& pending, const RingAnswer& answer);
  void answered_sampling(const Pending& pending, const RingAnswer& answer);
  void answered_repeat(const Pending& pending, const RingAnswer& answer);
  void judge_ready(RingModel& model);
  void judge(RingModel& model, std::uint64_t seq, RingModel::Op& op);
  void judge_good(RingModel& model, std::uint64_t seq, const RingModel::Op& op);
  void judge_failure(RingModel& model, std::uint64_t seq, const RingModel::Op& op);
  void rewind(RingModel& model, std::uint64_t step);
  void lost(RingModel& model, std::uint64_t last_seq, const Status& why);
  [[nodiscard]] bool loss_possible(const RingModel& model) const;
  [[nodiscard]] std::uint64_t deaths(const RingModel& model) const {
    return parts_.node.deaths(model.engine);
  }
  [[nodiscard]] bool store_fails() const {
    return parts_.script.can(&Faults::store_refuses) || parts_.script.can(&Faults::store_mute) ||
           parts_.script.can(&Faults::store_full) || parts_.script.can(&Faults::store_picky);
  }
  [[nodiscard]] bool moves_fail() const {
    return parts_.script.can(&Faults::fail_move) || parts_.script.can(&Faults::blob_fails);
  }
  void complain(const RingModel& model, std::uint64_t seq, const char* what, const Status& status);

  const Parts parts_;
  const std::uint32_t job_;
  std::uint64_t left_;  // ops to come
  TenantId tenant_;
  bool open_ = false;
  bool opening_ = false;
  bool finishing_ = false;
  bool restarted_ = false;  // plexrld, and no call was made since
  bool closed_ = false;
  std::uint64_t closes_ = 0;
  std::uint64_t connection_ = 0;  // counts them, for answers to what is not an op
  SessionId session_;
  std::uint64_t last_request_ = 0;
  std::map<std::uint64_t, Pending> pending_;
  std::set<std::uint64_t> answered_;
  std::vector<std::unique_ptr<RingModel>> models_;
  TimePoint away_until_;
  std::uint64_t answered_well_ = 0;
  std::uint64_t losses_ = 0;
};

// For a state that was lost: the step that it is at again. None: the text says nothing of that.
[[nodiscard]] std::optional<std::uint64_t> step_after_loss(const Status& status);

}  // namespace plexrl::runtime
