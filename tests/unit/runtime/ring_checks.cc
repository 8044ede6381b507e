// SPDX-License-Identifier: Apache-2.0
#include "ring_checks.h"

#include <algorithm>

#include "api/explain.h"

namespace plexrl::runtime {
namespace {

using Kind = core::WaitReason::Kind;

bool says(const std::string& reason, const char* text) {
  return reason.find(text) != std::string::npos;
}

}  // namespace

void RingChecks::complain(const Op& op, const char* what) {
  broken_.add("op %" PRIu64 " (%s, number %" PRIu64 " of model %" PRIu64 ", %s): %s; it says '%s'",
              op.id.value, op_kind_name(op.kind), op.seq, op.model.value, op_state_name(op.state),
              what, api::explain(node_.runtime(), op).c_str());
}

void RingChecks::after_event() {
  if (!node_.ready()) return;
  NodeRuntime& runtime = node_.runtime();
  const auto holder = runtime.lease_service().holder();
  node_.ledger().lease_held = holder.has_value();
  const Op* first = nullptr;
  for (const auto& [id, op] : runtime.ops().all()) {
    if (op.state == OpState::kRunning && first != nullptr && !run_together(*first, op))
      complain(op, "runs beside another");
    if (op.state == OpState::kRunning) first = &op;
    check_op(op);
  }
}

// Generate ops of different models of one engine, none of which was there when an engine died.
bool RingChecks::run_together(const Op& a, const Op& b) {
  const ModelTable& models = node_.runtime().models();
  const auto joins = [](const Op& op) {
    return op.kind == core::OpKind::kGenerate && op.deaths == 0;
  };
  return joins(a) && joins(b) && a.model != b.model &&
         models.engine_of(a.model) == models.engine_of(b.model);
}

void RingChecks::check_op(const Op& op) {
  NodeRuntime& runtime = node_.runtime();
  const std::string reason = api::explain(runtime, op);
  if (says(reason, "unknown") || says(reason, "it is queued") || reason.size() < 12)
    complain(op, "nobody knows why it waits");
  if (op.leader) return check_rider(op, reason);
  if (op.state == OpState::kHeld) return check_held(op, reason);
  if (op.state == OpState::kGap && !op.training()) return;  // it is to tell a loss
  if (op.state == OpState::kGap) {
    if (runtime.flows().at(op.model).stream.next_seq() >= op.seq) complain(op, "there is no gap");
    return;
  }
  // The scheduler is told nothing any more while plexrld drains.
  if (!op.fed() || runtime.dispatcher().draining()) return;
  const Kind kind = runtime.dispatcher().why(op.id).kind;
  if ((kind == Kind::kRunning) != (op.state == OpState::kRunning) || kind == Kind::kNone)
    complain(op, "the scheduler sees it otherwise");
}

void RingChecks::check_rider(const Op& op, const std::string& reason) {
  const Op* const leader = node_.runtime().ops().find(op.leader);
  const bool rides =
      leader != nullptr && std::count(leader->riders.begin(), leader->riders.end(), op.id) == 1;
  if (!rides || op.state != OpState::kHeld || !says(reason, "together with op"))
    complain(op, "it rides with nobody");
}

// Something must be there that it waits for, and the reason must be that.
void RingChecks::check_held(const Op& op, const std::string& reason) {
  NodeRuntime& runtime = node_.runtime();
  const ModelFlow& flow = runtime.flows().at(op.model);
  if (flow.recovering()) return;
  bool earlier = false;
  bool readers = false;
  bool samples = false;
  for (const Op* const other : runtime.ops().of_model(op.model)) {
    earlier = earlier || (other->training() && other->seq < op.seq);
    readers = readers || (!other->training() && other->reader);
    samples = samples || (other->kind == core::OpKind::kGenerate && other->fed());
  }
  if (says(reason, "goes with the next") && op.kind == core::OpKind::kGenerate && samples) return;
  if (says(reason, "earlier training ops") && op.training() && earlier) return;
  if (says(reason, "sampling ops") && op.publish() && readers && !earlier) return;
  // An engine that is up has something to say about it, too, until it has taken up its state.
  if (says(reason, "engine") && !earlier && !flow.replacing()) return;
  complain(op, "it does not wait for that");
}

bool RingChecks::quiet() {
  NodeRuntime& runtime = node_.runtime();
  return runtime.tenants().all().empty() && runtime.models().all().empty() &&
         runtime.ops().all().empty() && node_.writes().idle();
}

std::string RingChecks::left() {
  NodeRuntime& runtime = node_.runtime();
  std::string text = node_.writes().idle() ? "" : "something is on its way to the store;";
  for (const auto& [id, tenant] : runtime.tenants().all())
    text += " job " + std::to_string(tenant.job_id);
  for (const auto& [id, model] : runtime.models().all())
    text += " model " + std::to_string(id.value) + (model.resident ? " (resident)" : "");
  for (const auto& [id, op] : runtime.ops().all()) text += " op " + std::to_string(id.value);
  return text;
}

}  // namespace plexrl::runtime
