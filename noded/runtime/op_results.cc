// SPDX-License-Identifier: Apache-2.0
#include "runtime/op_results.h"

#include "base/log.h"

namespace plexrl::runtime {

void OpResults::accepted(Op& op) {
  const TimePoint now = clock_.now();
  accounting_.advance(now);
  accounting_.op_arrived(op.tenant);
  const TenantTotals& totals = accounting_.totals(op.tenant);
  op.accepted = now;
  op.others_before_ns = totals.wait_others_ns;
  op.switch_before_ns = totals.switch_ns;
}

void OpResults::first_started(Op& op) {
  if (op.first_run_ns != 0) return;
  const TimePoint now = clock_.now();
  accounting_.advance(now);
  const TenantTotals& totals = accounting_.totals(op.tenant);
  op.first_run_ns = now.ns - op.accepted.ns;
  op.timing.queued_ns = static_cast<std::uint64_t>(op.first_run_ns);
  op.timing.other_tenants_ns =
      static_cast<std::uint64_t>(totals.wait_others_ns - op.others_before_ns);
  op.timing.switch_ns = static_cast<std::uint64_t>(totals.switch_ns - op.switch_before_ns);
}

void OpResults::count(const Op& op, const OpOutcome& outcome, std::uint64_t tokens) {
  KindTotals& kind = accounting_.totals(op.tenant).kinds[static_cast<std::size_t>(op.kind)];
  ++kind.count;
  if (!outcome.status.ok()) ++kind.failed;
  kind.tokens += tokens;
  kind.run_ns += op.run_ns;
  kind.queued_ns += op.first_run_ns;
}

void OpResults::finish(Op& op, OpOutcome outcome, std::uint64_t tokens) {
  op.timing.run_ns = static_cast<std::uint64_t>(op.run_ns);
  outcome.reply.op = op.id.value;
  outcome.reply.timing = std::make_unique<wire::OpTimingT>(op.timing);
  if (op.training() && op.state != OpState::kGap) {
    // The state has changed already, so the client has to hear of it even when the disk is full; a
    // retry after a restart of plexrld would then not find it, which the log line says.
    if (const Status kept = log_.put_result(op.model, op.seq, outcome); !kept.ok())
      PLEXRL_LOG(kError, "model %llu seq %llu: %s", static_cast<unsigned long long>(op.model.value),
                 static_cast<unsigned long long>(op.seq), kept.to_string().c_str());
  }
  count(op, outcome, tokens);
  accounting_.advance(clock_.now());
  accounting_.op_left(op.tenant);
  const std::vector<Waiter> waiters = ops_.remove(op.id);
  for (const Waiter& waiter : waiters) waiter.handler(outcome);
}

void OpResults::replayed(Op& op) {
  accounting_.advance(clock_.now());
  accounting_.op_left(op.tenant);
  ++accounting_.totals(op.tenant).replayed_ops;
  ops_.remove(op.id);
}

}  // namespace plexrl::runtime
