// SPDX-License-Identifier: Apache-2.0
// BatchUnit: generate ops that the compute thread runs together. Whoever is asked to yield or is
// dropped leaves at the next token; the others do not notice.
#pragma once

#include <functional>
#include <mutex>
#include <set>
#include <vector>

#include "engine_torch/held_op.h"

namespace plexrl::worker {

// Whose activations are in the arena since it was last wiped. Compute thread.
class ActivationOwners {
 public:
  // The arena is the model's alone: wipes it when others have used it.
  void begin(ModelCode& code, std::uint64_t model);
  // The model shares a batch with those that are there.
  void join(std::uint64_t model) { models_.insert(model); }

 private:
  std::set<std::uint64_t> models_{0};  // of nobody knows whom, at first
};

class BatchUnit {
 public:
  // Called on the compute thread when an op has left; the op is the protocol thread's again.
  using Left = std::function<void(HeldOp& op, OpOutcome outcome)>;
  BatchUnit(ModelTable& table, ActivationOwners& activations, std::atomic<std::uint64_t>& progress,
            Left left)
      : table_(table), activations_(activations), progress_(progress), left_(std::move(left)) {}

  // The op takes part from the next token on, one that is to be dropped only until it is undone.
  // The model and the op are lent until it has left. True: nobody runs the unit: submit run().
  // Protocol thread.
  [[nodiscard]] bool join(HeldModel& model, HeldOp& op);
  // Until all ops have left. Compute thread.
  void run();

 private:
  struct Member {
    HeldModel* model;
    HeldOp* op;
    TimePoint since;
  };

  [[nodiscard]] bool take_joining();
  void begin(Member member);
  [[nodiscard]] Status enter(const Member& member);
  void step();
  void end(const model::OpRun* run, const Status& status);
  void stop_asked();
  void leave(const Member& member, OpOutcome outcome);

  ModelTable& table_;
  ActivationOwners& activations_;
  std::atomic<std::uint64_t>& progress_;
  Left left_;

  std::mutex mutex_;
  std::vector<Member> joining_;
  bool running_ = false;  // run() is under way or submitted

  // The compute thread's.
  std::vector<Member> members_;
  std::unique_ptr<model::OpBatch> batch_;
};

}  // namespace plexrl::worker
