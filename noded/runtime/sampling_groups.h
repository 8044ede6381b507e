// SPDX-License-Identifier: Apache-2.0
// SamplingGroups: clients that send each prompt by itself have many generate ops of one model under
// way. One op of a model is with the scheduler at a time; those that come meanwhile and differ from
// each other in prompts and seed only go as one when it has ended: as the op of the first, the
// leader, with the others as riders. Each draws the bits that it draws alone. Loop thread only.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "runtime/op_table.h"

namespace plexrl::runtime {

class SamplingGroups {
 public:
  // A step of all rows is the way to the next yield point.
  static constexpr std::uint64_t kMaxRows = 256;
  static constexpr std::uint64_t kMaxTokens = 1U << 21;  // positions, prompts and new ones

  // `fits`: whether a group of this model may be so large.
  using Fits = std::function<bool(const Op& leader, std::uint64_t kv_bytes)>;
  SamplingGroups(OpTable& ops, Fits fits) : ops_(ops), fits_(std::move(fits)) {}

  // A generate waits for its turn, for the first time or again. The op to feed now; none: it goes
  // with another one, or with the next group. An op that ended its engine or its group is alone.
  [[nodiscard]] OpId arrived(Op& op);
  // The leader's result is there: its riders are by themselves, and end with it.
  void dissolve(Op& leader);
  // The op ends: those that rode with it, which are nobody's riders any more.
  [[nodiscard]] std::vector<OpId> left(const Op& op);
  // The leader of the next group, when none is under way.
  [[nodiscard]] OpId next(ModelId model);
  // All ops of the model are by themselves and arrive again; nothing of it runs.
  void forget(ModelId model);

 private:
  struct Queue {
    OpId leading;
    std::deque<OpId> waiting;
  };
  void gather(Op& leader, std::deque<OpId>& waiting);

  OpTable& ops_;
  Fits fits_;
  std::map<ModelId, Queue> queues_;
};

// What the engine is sent of a leader; the riders that are there now.
[[nodiscard]] wire::GenerateArgsT shared_args(Op& leader, OpTable& ops);
// Each member's part of the result, in the order of `leader.shared`. INTERNAL when it has not all
// rows.
struct SharedResult {
  OpId op;
  wire::GenerateResultT value;
  std::uint64_t rows = 0;
  std::uint64_t tokens = 0;  // that were computed for it
};
[[nodiscard]] Result<std::vector<SharedResult>> split_result(const Op& leader,
                                                             wire::GenerateResultT result);

}  // namespace plexrl::runtime
