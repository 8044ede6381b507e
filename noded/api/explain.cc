// SPDX-License-Identifier: Apache-2.0
#include "api/explain.h"

#include <algorithm>
#include <cstdio>

namespace plexrl::api {
namespace {

using runtime::NodeRuntime;
using runtime::Op;
using runtime::op_kind_name;
using runtime::OpState;

std::string seconds(std::int64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(ns) * 1e-9);
  return text;
}

std::string job_name(NodeRuntime& node, TenantId tenant) {
  const auto* row = node.tenants().find(tenant);
  return row == nullptr ? "another job" : "job " + std::to_string(row->job_id);
}

// In the words of plexrl(7): what a person who waits wants to know of another job's op.
const char* activity(core::OpKind kind) {
  switch (kind) {
    case core::OpKind::kGenerate:
      return "generating";
    case core::OpKind::kLogprobs:
      return "computing log-probabilities";
    case core::OpKind::kForwardBackward:
    case core::OpKind::kOptimStep:
      return "training";
    case core::OpKind::kSave:
      return "saving";
    case core::OpKind::kLoad:
      return "loading";
    case core::OpKind::kLease:
      return "holding a lease";
    case core::OpKind::kNone:
      break;
  }
  return "";
}

// How long it is expected to take yet; nothing where that is not known.
std::string about(NodeRuntime& node, TimePoint until) {
  if (until.ns == 0) return "";
  const std::int64_t left = until.ns - node.clock().now().ns;
  return left > 0 ? ", about " + seconds(left) : ", which takes longer than expected";
}

std::string doing(NodeRuntime& node, const core::WaitReason& reason) {
  if (reason.doing == core::OpKind::kNone) return "";
  return std::string(": ") + activity(reason.doing) + about(node, reason.until);
}

std::string engine_text(NodeRuntime& node, const Op& op) {
  const auto view = node.engines().view(node.models().engine_of(op.model));
  if (view.state == runtime::EngineSupervisor::State::kUp)
    return "the engine is taking up its state";
  std::string text = "the engine is being started";
  if (!view.error.empty()) text += "; it ended with: " + view.error;
  return text;
}

std::string scheduled(NodeRuntime& node, const Op& op) {
  using Kind = core::WaitReason::Kind;
  const core::WaitReason reason = node.dispatcher().why(op.id);
  switch (reason.kind) {
    case Kind::kOtherTenant:
      return "waiting for " + job_name(node, reason.holder) + doing(node, reason);
    case Kind::kSwitch:
      return op.kind == core::OpKind::kLease
                 ? "waiting for models that do not fit beside it to be parked"
                 : "waiting for its model to be made resident" + about(node, reason.until);
    case Kind::kEngineDown:
      return "waiting: " + engine_text(node, op);
    case Kind::kOwnOps:
      return "waiting for earlier ops of its own job" + doing(node, reason);
    case Kind::kMemory:
      return "waiting for device memory";
    case Kind::kRunning:
    case Kind::kNone:
      return "it is its turn now";
  }
  return "it is queued";
}

std::string lease_text(NodeRuntime& node, const Op& op) {
  const auto view = node.lease_service().view(op.id);
  if (!view || op.state != OpState::kRunning) return "";
  if (view->state == std::string_view("stopping"))
    return "; did not yield, being stopped for " + seconds(view->stopping_ns) + ": " +
           std::to_string(view->processes) + " processes left" +
           (view->trouble.empty() ? "" : ": " + view->trouble);
  if (view->state != std::string_view("asked")) return "";
  return "; asked to yield within " + seconds(view->yield_left_ns);
}

std::string gap(NodeRuntime& node, const Op& op) {
  if (!op.training()) return "waiting for the node's store, to tell that the model's state is gone";
  const auto flow = node.flows().find(op.model);
  const std::uint64_t next = flow == node.flows().end() ? 0 : flow->second.stream.next_seq();
  return "waiting for training op " + std::to_string(next) +
         " of this model, which did not come yet";
}

bool earlier_training(NodeRuntime& node, const Op& op) {
  const auto ops = node.ops().of_model(op.model);
  return std::any_of(ops.begin(), ops.end(), [&](const Op* other) {
    return other->training() && !other->replay && other->seq < op.seq;
  });
}

bool samples_already(NodeRuntime& node, const Op& op) {
  const auto ops = node.ops().of_model(op.model);
  return op.kind == core::OpKind::kGenerate &&
         std::any_of(ops.begin(), ops.end(), [](const Op* other) {
           return other->kind == core::OpKind::kGenerate && other->fed();
         });
}

std::string held(NodeRuntime& node, const Op& op) {
  const auto flow = node.flows().find(op.model);
  if (flow != node.flows().end() && flow->second.recovering())
    return "waiting while the model is recovered: its training ops since the last commit run again";
  if (samples_already(node, op))
    return "waiting for sampling of this model that is under way; it goes with the next";
  if (earlier_training(node, op)) return "waiting for earlier training ops of this model";
  if (flow != node.flows().end() && flow->second.replacing() && op.publish())
    return "waiting for sampling ops of the version that it replaces";
  // Nothing of its own is in front of it: a plexrld that has just started waits for the engine.
  return "waiting: " + engine_text(node, op);
}

}  // namespace

std::string explain(NodeRuntime& node, const Op& op) {
  std::string what = std::string(op_kind_name(op.kind)) + ": ";
  if (op.training() && !node.store_trouble().empty())
    what += "its result will wait until the node's store takes it (" + node.store_trouble() + "); ";
  switch (op.state) {
    case OpState::kGap:
      return what + gap(node, op);
    case OpState::kHeld: {
      const Op* const leader = op.leader ? node.ops().find(op.leader) : nullptr;
      if (leader != nullptr)
        return "together with op " + std::to_string(op.leader.value) + ", " +
               explain(node, *leader);
      return what + held(node, op);
    }
    case OpState::kQueued:
      return what + scheduled(node, op);
    case OpState::kRunning:
      return what + "running for " + seconds(node.clock().now().ns - op.running_since.ns) +
             lease_text(node, op);
    case OpState::kYielded:
      return what + "made way for others; " + scheduled(node, op);
    case OpState::kCommitting:
      return what + "done; the loaded state is being committed";
  }
  return what + "unknown";
}

}  // namespace plexrl::api
