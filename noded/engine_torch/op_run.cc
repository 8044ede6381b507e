// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/op_run.h"

#include "engine_torch/compute_threads.h"
#include "engine_torch/op_factories.h"

namespace plexrl::model {

Result<std::unique_ptr<OpRun>> make_op_run(const OpEnv& env, const wire::OpArgsUnion& args) {
  PLEXRL_CHECK(env.state != nullptr && env.state->layout != nullptr, "an op needs a model");
  PLEXRL_TRY(check_memory(*env.state));
  apply_compute_threads();
  switch (args.type) {
    case wire::OpArgs::GenerateArgs:
      return make_generate(env, *args.AsGenerateArgs());
    case wire::OpArgs::LogprobsArgs:
      return make_logprobs(env, *args.AsLogprobsArgs());
    case wire::OpArgs::ForwardBackwardArgs:
      return make_forward_backward(env, *args.AsForwardBackwardArgs());
    case wire::OpArgs::OptimStepArgs:
      return make_optim_step(env, *args.AsOptimStepArgs());
    case wire::OpArgs::SaveArgs:
      return make_save(env, *args.AsSaveArgs());
    case wire::OpArgs::LoadArgs:
      return make_load(env, *args.AsLoadArgs());
    case wire::OpArgs::NONE:
      break;
  }
  return error(Code::UNSUPPORTED, "op of kind %d: not known to this engine",
               static_cast<int>(args.type));
}

bool writes_committed_state(const wire::OpArgsUnion& args) {
  if (args.type == wire::OpArgs::SaveArgs)
    return args.AsSaveArgs()->target == wire::SaveTarget::Sampler;
  return args.type == wire::OpArgs::OptimStepArgs || args.type == wire::OpArgs::LoadArgs;
}

bool needs_whole_state(const wire::OpArgsUnion& args) {
  return args.type != wire::OpArgs::GenerateArgs && args.type != wire::OpArgs::LogprobsArgs &&
         args.type != wire::OpArgs::ForwardBackwardArgs;
}

}  // namespace plexrl::model
