// SPDX-License-Identifier: Apache-2.0
// Accounting: where each tenant's time went. Between two events of the device group the picture
// does not change, so each span is given to one account per tenant: computing (in a batch by its
// rows), waiting for another tenant, waiting for a switch, or idle. The totals are stored now and
// then and at the end, so that a restart of plexrld does not begin at zero; a kill loses what came
// after the last save(). Loop thread only; nanoseconds.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "base/strong_id.h"
#include "core/types.h"

namespace plexrl::store {
class AsyncStore;
}

namespace plexrl::runtime {

struct KindTotals {
  std::uint64_t count = 0;
  std::uint64_t failed = 0;
  std::uint64_t tokens = 0;
  std::int64_t run_ns = 0;
  std::int64_t queued_ns = 0;
};

struct TenantTotals {
  std::int64_t device_ns = 0;         // its op ran; in a batch, its part of that time
  std::int64_t wait_others_ns = 0;    // it had ops, none ran, and another tenant's did
  std::int64_t switch_ns = 0;         // exposed: it had ops, nothing ran, and state was being moved
  std::int64_t switch_hidden_ns = 0;  // state of its models was being moved while an op ran
  std::int64_t wall_ns = 0;           // from its first op to the job's end
  std::uint64_t replayed_ops = 0;
  std::uint64_t commits = 0;
  std::int64_t commit_stall_ns = 0;
  std::array<KindTotals, 8> kinds;  // by core::OpKind
  // wall / (wall - time in which every outstanding op waited for others or a switch)
  [[nodiscard]] double slowdown() const;
};

// Of the device group, since this plexrld started.
struct DeviceTotals {
  std::int64_t busy_ns = 0;            // an op ran
  std::int64_t switch_exposed_ns = 0;  // there were ops, none ran, and state was being moved
  std::int64_t switch_hidden_ns = 0;   // an op ran, and state was being moved
};

// Of a model, since this plexrld started.
struct ModelTotals {
  std::int64_t switch_exposed_ns = 0;  // its state was being moved, nothing ran and ops waited
  std::int64_t switch_hidden_ns = 0;   // its state was being moved, and an op ran
  std::int64_t commit_stall_ns = 0;    // part of training_ns
  std::int64_t training_ns = 0;        // training ops of it ran, standing included
  [[nodiscard]] double commit_stall_share() const;  // of training_ns; 0 before it trained
};

// What an op took, as told when it has stopped.
struct OpTimes {
  bool training = false;
  std::int64_t run_ns = 0;           // all of it
  std::int64_t commit_stall_ns = 0;  // of that, it stood for a commit's copy
  std::int64_t switch_stall_ns = 0;  // or for the rest of its model
};

class Accounting {
 public:
  explicit Accounting(store::AsyncStore& store) : store_(store) {}

  // What an earlier plexrld saved. CORRUPT names the row.
  [[nodiscard]] Status load();
  // Stores the totals that have changed since they were stored; not waited for. What the disk does
  // not take is stored next time.
  void save();

  // The span since the last call ends; call before anything below changes the picture.
  void advance(TimePoint now);
  void op_arrived(TenantId tenant);
  void op_left(TenantId tenant);
  // An op of the tenant runs, or has stopped. Of a batch each has device time by its rows.
  void started(TenantId tenant, std::uint64_t rows = 1);
  void stopped(TenantId tenant, std::uint64_t rows = 1);
  // A suspend or resume of a model; `tenant` is none for a base. Ending one that is not under way
  // does nothing.
  void move_started(ModelId model, TenantId tenant) { moves_.insert_or_assign(model, tenant); }
  void move_ended(ModelId model) { moves_.erase(model); }
  // A successful op that has just stopped running. While it stood for the rest of its model, that
  // move was exposed, although its engine had the op.
  void op_ran(TenantId tenant, ModelId model, const OpTimes& times);
  // The job's incarnation is over: its wall time stands still until its next op.
  void ended(TenantId tenant);
  void forget(TenantId tenant);

  // Up to the last advance(). find: null when nothing was counted for the tenant.
  [[nodiscard]] TenantTotals& totals(TenantId tenant);
  [[nodiscard]] const TenantTotals* find(TenantId tenant);
  [[nodiscard]] ModelTotals model(ModelId id) const;  // zeros when nothing was counted for it
  void forget_model(ModelId id) { models_.erase(id); }
  [[nodiscard]] bool computes(TenantId tenant) const { return running_.contains(tenant); }
  [[nodiscard]] bool moving() const { return !moves_.empty(); }
  [[nodiscard]] const DeviceTotals& device() const { return device_; }

 private:
  // Sums over all spans. A tenant's own times follow from their growth, so that a span costs the
  // same however many tenants there are.
  struct Sums {
    std::int64_t all_ns = 0;
    std::int64_t held_ns = 0;    // some op ran
    std::int64_t moving_ns = 0;  // nothing ran, and state was being moved
  };
  struct Row {
    TenantTotals totals;
    std::uint64_t outstanding = 0;
    bool seen = false;        // an op has come, and the job has not ended since
    Sums settled;             // the sums up to which `totals` is complete
    std::int64_t ran_ns = 0;  // an op of it ran, alone or in a batch
    std::int64_t settled_ran_ns = 0;
    std::string stored;  // as in the store
  };
  struct Running {
    std::uint64_t ops = 0;
    std::uint64_t rows = 0;
  };
  void settle(Row& row) const;
  void share_out(std::int64_t span);
  void count_hidden(std::int64_t span);
  void stood_for_switch(Row& row, ModelTotals& model, std::int64_t ns);

  store::AsyncStore& store_;
  std::map<TenantId, Row> rows_;
  std::map<ModelId, ModelTotals> models_;
  Sums sums_;
  TimePoint last_;
  std::map<TenantId, Running> running_;
  std::map<ModelId, TenantId> moves_;  // under way
  DeviceTotals device_;
  std::uint64_t outstanding_ = 0;  // of all tenants
};

}  // namespace plexrl::runtime
