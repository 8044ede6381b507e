// SPDX-License-Identifier: Apache-2.0
// OpTable: the ops of a device group in the order in which they may run. Each model has a queue per
// class (training, logprobs, rollout); each tenant knows the heads of its models' queues; the
// listener is told which tenants wait. Every change costs O(log n). Part of the scheduler.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/byte_codec.h"
#include "core/op_class.h"
#include "core/types.h"

namespace plexrl::core {

struct Op {
  ModelId model;
  OpKind kind = OpKind::kNone;
  std::uint64_t device_bytes = 0;
  std::uint64_t work_tokens = 0;
  std::uint64_t rows = 1;
  Duration slice{};  // of a lease
  Duration limit{};
  TimePoint waits_since;    // arrived, or yielded
  Duration expected;        // to run, when it arrived; 0: not known
  Duration ran;             // before it yielded
  std::uint64_t order = 0;  // of arrival
  bool queued = true;       // false: it runs
  bool started = false;     // holds its device_bytes
  bool cancelled = false;   // runs, and ends at its next yield point
  bool too_large = false;   // can never run
  bool alone = false;       // runs in no batch
};

class OpListener {
 public:
  virtual ~OpListener() = default;
  // The tenant has ops that could run; told again whenever another one is its next or its oldest.
  virtual void tenant_waits(TenantId tenant) = 0;
  virtual void tenant_rests(TenantId tenant) = 0;
  virtual void tenant_gone(TenantId tenant) = 0;  // its last model was removed
  virtual void op_gone(TenantId tenant, const Op& op) = 0;
};

class OpTable {
 public:
  // A tenant's oldest op is passed over this many times before it goes first, so that a steady
  // stream of training cannot starve the same job's rollouts.
  static constexpr std::uint32_t kMaxBypassed = 8;

  explicit OpTable(OpListener& listener) : listener_(listener) {}

  void add_model(ModelId model, TenantId tenant);
  // Its queued ops are gone. A running one stays until erase().
  void remove_model(ModelId model);
  // Ops of a model that is not runnable wait without being offered. Models begin so.
  void set_runnable(ModelId model, bool runnable);

  void add(OpId id, Op op);  // gives it its place in the order
  void take(OpId id);        // it runs now
  // It ran and goes on later: at its old place, a lease at the end.
  void put_back(OpId id, TimePoint now);
  void erase(OpId id);
  // The engine is gone: nothing of the model is started any more.
  void forget_started(ModelId model);

  [[nodiscard]] const Op* find(OpId id) const;
  [[nodiscard]] const std::map<OpId, Op>& all() const { return ops_; }
  void set_cancelled(OpId id) { ops_.at(id).cancelled = true; }
  void set_started(OpId id) { ops_.at(id).started = true; }
  void add_run(OpId id, Duration ran) { ops_.at(id).ran.ns += ran.ns; }
  // The listener is told of the tenant again if it waits.
  void tell_again(TenantId tenant);

  // The tenant's next op; the tenant must be one that waits.
  [[nodiscard]] OpId pick(TenantId tenant, bool oldest_first) const;
  [[nodiscard]] OpId oldest(TenantId tenant) const { return pick(tenant, true); }
  // The model's next op; none when nothing of it can run.
  [[nodiscard]] std::optional<OpId> pick_of(ModelId model, bool oldest_first) const;

  void encode(ByteWriter& out) const;
  // After add_model and before set_runnable. A queued op of an unknown model fails the reader.
  void decode(ByteReader& in);

 private:
  using Queue = std::map<std::uint64_t, OpId>;                // by order
  using Heads = std::set<std::pair<std::uint64_t, ModelId>>;  // (order of the head, model)
  struct ModelQueues {
    TenantId tenant;
    bool runnable = false;
    std::array<Queue, kOpClasses> queues;
    std::set<OpId> too_large;
  };
  struct TenantHeads {
    std::uint32_t models = 0;
    std::uint32_t bypassed = 0;  // ops that ran before the oldest one
    std::array<Heads, kOpClasses> heads;
  };

  void insert(ModelQueues& queues, ModelId model, OpClass cls, std::uint64_t order, OpId id);
  void remove(ModelQueues& queues, ModelId model, OpClass cls, std::uint64_t order);
  void tell(TenantId tenant);
  [[nodiscard]] static std::optional<std::uint64_t> oldest_order(const TenantHeads& tenant);
  [[nodiscard]] const Queue* best_queue(const ModelQueues& queues, bool oldest_first) const;

  OpListener& listener_;
  std::map<OpId, Op> ops_;
  std::map<ModelId, ModelQueues> models_;
  std::map<TenantId, TenantHeads> tenants_;
  std::uint64_t last_order_ = 0;
};

}  // namespace plexrl::core
