// SPDX-License-Identifier: Apache-2.0
#include "runtime/op.h"

namespace plexrl::runtime {

const char* op_state_name(OpState state) noexcept {
  switch (state) {
    case OpState::kGap:
      return "gap";
    case OpState::kHeld:
      return "held";
    case OpState::kQueued:
      return "queued";
    case OpState::kRunning:
      return "running";
    case OpState::kYielded:
      return "yielded";
    case OpState::kCommitting:
      return "committing";
  }
  return "unknown";
}

const char* op_kind_name(core::OpKind kind) noexcept {
  switch (kind) {
    case core::OpKind::kNone:
      return "none";
    case core::OpKind::kGenerate:
      return "generate";
    case core::OpKind::kLogprobs:
      return "logprobs";
    case core::OpKind::kForwardBackward:
      return "forward_backward";
    case core::OpKind::kOptimStep:
      return "optim_step";
    case core::OpKind::kSave:
      return "save";
    case core::OpKind::kLoad:
      return "load";
    case core::OpKind::kLease:
      return "lease";
  }
  return "unknown";
}

bool Op::publish() const {
  const auto* save = args.AsSaveArgs();
  return save != nullptr && save->target == wire::SaveTarget::Sampler;
}

bool Op::needs_client_fd() const {
  if (const auto* save = args.AsSaveArgs()) return save->target == wire::SaveTarget::ClientFd;
  const auto* load = args.AsLoadArgs();
  return load != nullptr && load->target == wire::SaveTarget::ClientFd;
}

bool Op::has_effect() const {
  if (kind == core::OpKind::kOptimStep || kind == core::OpKind::kLoad) return true;
  if (const auto* fb = args.AsForwardBackwardArgs()) return !fb->forward_only;
  return publish();
}

}  // namespace plexrl::runtime
