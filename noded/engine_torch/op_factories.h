// SPDX-License-Identifier: Apache-2.0
// One factory per op; make_op_run chooses. Each checks its arguments fully.
#pragma once

#include "engine_torch/op_run.h"

namespace plexrl::model {

using OpRunResult = Result<std::unique_ptr<OpRun>>;
[[nodiscard]] OpRunResult make_generate(const OpEnv& env, const wire::GenerateArgsT& args);
[[nodiscard]] OpRunResult make_logprobs(const OpEnv& env, const wire::LogprobsArgsT& args);
[[nodiscard]] OpRunResult make_forward_backward(const OpEnv& env,
                                                const wire::ForwardBackwardArgsT& args);
[[nodiscard]] OpRunResult make_optim_step(const OpEnv& env, const wire::OptimStepArgsT& args);
[[nodiscard]] OpRunResult make_save(const OpEnv& env, const wire::SaveArgsT& args);
[[nodiscard]] OpRunResult make_load(const OpEnv& env, const wire::LoadArgsT& args);

}  // namespace plexrl::model
