// SPDX-License-Identifier: Apache-2.0
// check_op: what a client may ask of a model, checked before anything is queued. The texts name the
// row or datum. Pure; any thread.
#pragma once

#include "base/result.h"
#include "core/types.h"
#include "plexrl_generated.h"
#include "runtime/model_table.h"
#include "runtime/op.h"

namespace plexrl::runtime {

// INVALID_ARGUMENT, UNSUPPORTED (unknown op), TOO_LARGE (longer than the model's positions).
[[nodiscard]] Result<OpSize> check_op(const wire::SubmitOpT& submit, const Model& model,
                                      bool has_fd);
[[nodiscard]] bool is_training(wire::OpArgs kind) noexcept;
// Sampling: the version that the op names; 0 otherwise.
[[nodiscard]] std::uint64_t named_version(const wire::OpArgsUnion& args) noexcept;
// "[A-Za-z0-9._-]{1,64}", and neither "." nor "..".
[[nodiscard]] bool valid_name(std::string_view name) noexcept;

}  // namespace plexrl::runtime
