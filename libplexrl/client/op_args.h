// SPDX-License-Identifier: Apache-2.0
// From the C structures of plexrl.h to op arguments of the wire. Checks what would make the call
// meaningless (null arrays, missing columns); limits that depend on the model are the service's.
// INVALID_ARGUMENT names the field.
#pragma once

#include "base/result.h"
#include "ops_generated.h"
#include "plexrl/plexrl.h"

namespace plexrl::client {

[[nodiscard]] Result<wire::GenerateArgsT> generate_args(const plexrl_generate_options& options);
[[nodiscard]] Result<wire::LogprobsArgsT> logprobs_args(std::uint64_t version,
                                                        const plexrl_tokens* sequences,
                                                        std::size_t count);
[[nodiscard]] Result<wire::ForwardBackwardArgsT> forward_backward_args(
    const plexrl_forward_backward_options& options);
[[nodiscard]] Result<wire::OptimStepArgsT> optim_args(const plexrl_optim_options& options);
// A name in the service's store: [A-Za-z0-9._-]{1,64}, not beginning with a dot.
[[nodiscard]] Status check_store_name(const char* name);

}  // namespace plexrl::client
