// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "engine_torch/arena_math.h"
#include "engine_torch/op_checks.h"
#include "engine_torch/op_factories.h"

namespace plexrl::model {
namespace {

constexpr double kClipEpsilon = 1e-6;  // as torch.nn.utils.clip_grad_norm_

class OptimStepOp final : public OpRun {
 public:
  OptimStepOp(const OpEnv& env, const wire::OptimStepArgsT& args)
      : state_(env.state), args_(args) {}

  // The norm is checked before anything is written.
  Result<bool> step() override {
    return guarded("optim_step", [this] { return update(); });
  }
  wire::OpValueUnion take_result() override {
    wire::OpValueUnion value;
    value.Set(wire::OptimStepResultT(result_));
    return value;
  }
  [[nodiscard]] std::uint64_t tokens_done() const noexcept override { return 0; }

 private:
  Result<bool> update() {
    ModelMemory& memory = state_->memory;
    result_.grad_norm = std::sqrt(sum_of_squares(state_->device, memory.gradients));
    if (!std::isfinite(result_.grad_norm))
      return error(
          Code::INVALID_ARGUMENT,
          "optim_step: the summed gradients are not finite; load a checkpoint to drop them");
    double scale = 1.0;
    if (args_.grad_clip_norm > 0)
      scale = std::min(1.0, args_.grad_clip_norm / (result_.grad_norm + kClipEpsilon));
    adamw(state_->device,
          {args_.learning_rate, args_.beta1, args_.beta2, args_.eps, args_.weight_decay, scale,
           state_->step + 1},
          memory.weights, memory.gradients, memory.adam_m, memory.adam_v);
    fill_zero(state_->device, memory.gradients);
    state_->gradients_pending = false;
    result_.step = ++state_->step;
    return true;
  }

  ModelState* state_;
  wire::OptimStepArgsT args_;
  wire::OptimStepResultT result_;
};

Status check_range(const char* name, double value, double least, double most) {
  if (value >= least && value <= most) return {};
  return error(Code::INVALID_ARGUMENT, "optim_step: %s is %g, must be %g to %g", name, value, least,
               most);
}

}  // namespace

OpRunResult make_optim_step(const OpEnv& env, const wire::OptimStepArgsT& args) {
  constexpr double kBelowOne = 1.0 - 1e-9;
  if (env.state->layout->mode == wire::TrainMode::None)
    return error(Code::UNSUPPORTED, "optim_step: this model is for sampling only");
  PLEXRL_TRY(check_range("learning_rate", args.learning_rate, 0.0, 1e3));
  PLEXRL_TRY(check_range("beta1", args.beta1, 0.0, kBelowOne));
  PLEXRL_TRY(check_range("beta2", args.beta2, 0.0, kBelowOne));
  PLEXRL_TRY(check_range("eps", args.eps, 1e-30, 1.0));
  PLEXRL_TRY(check_range("weight_decay", args.weight_decay, 0.0, 1e3));
  PLEXRL_TRY(check_range("grad_clip_norm", args.grad_clip_norm, 0.0, 1e30));
  if (!env.state->gradients_pending)
    return error(Code::INVALID_ARGUMENT,
                 "optim_step: no gradients since the last step; call forward_backward first");
  return std::unique_ptr<OpRun>(std::make_unique<OptimStepOp>(env, args));
}

}  // namespace plexrl::model
