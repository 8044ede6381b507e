// SPDX-License-Identifier: Apache-2.0
#include "runtime/op_results.h"

#include "base/check.h"

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

// A result that was told and is not stored would be lost with this process, and the op would seem
// never to have run. The next ops go on meanwhile.
void OpResults::finish(Op& op, OpOutcome outcome, std::uint64_t tokens) {
  op.timing.run_ns = static_cast<std::uint64_t>(op.run_ns);
  outcome.reply.op = op.id.value;
  outcome.reply.timing = std::make_unique<wire::OpTimingT>(op.timing);
  count(op, outcome, tokens);
  accounting_.advance(clock_.now());
  accounting_.op_left(op.tenant);
  const ModelId model = op.model;
  const std::uint64_t seq = op.seq;
  const bool keep = op.training() && op.state != OpState::kGap;
  std::vector<Waiter> waiters = ops_.remove(op.id);
  if (!keep) return tell_unkept(model, outcome, std::move(waiters));
  Untold& untold = untold_[{model, seq}];
  untold = {std::move(outcome), std::move(waiters)};
  log_.put_result(model, seq, untold.outcome, [this, model, seq] { tell(model, seq); });
}

// Nothing of it is kept. That the model's state is gone must be true after a kill, too.
void OpResults::tell_unkept(ModelId model, const OpOutcome& outcome, std::vector<Waiter> waiters) {
  const auto answer = [outcome, to = std::move(waiters)] {
    for (const Waiter& waiter : to) waiter.handler(outcome);
  };
  const Code code = outcome.status.code();
  if (code != Code::LOST && code != Code::CORRUPT) return answer();
  log_.when_kept(model, answer);
}

void OpResults::tell(ModelId model, std::uint64_t seq) {
  const auto told = untold_.extract({model, seq});
  PLEXRL_CHECK(!told.empty(), "a result is told once");
  for (const Waiter& waiter : told.mapped().waiters) waiter.handler(told.mapped().outcome);
}

void OpResults::repeat(ModelId model, std::uint64_t seq, Waiter waiter) {
  if (const auto untold = untold_.find({model, seq}); untold != untold_.end()) {
    untold->second.waiters.push_back(std::move(waiter));
    return;
  }
  auto outcome = log_.result(model, seq);
  if (outcome) return waiter.handler(*outcome);
  OpOutcome lost;
  lost.status = error(Code::LOST, "the result of training op %llu is no longer kept",
                      static_cast<unsigned long long>(seq));
  waiter.handler(lost);
}

void OpResults::replayed(Op& op) {
  accounting_.advance(clock_.now());
  accounting_.op_left(op.tenant);
  ++accounting_.totals(op.tenant).replayed_ops;
  ops_.remove(op.id);
}

}  // namespace plexrl::runtime
