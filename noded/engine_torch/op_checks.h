// SPDX-License-Identifier: Apache-2.0
// Checks and helpers that several ops share. Texts name the op, the argument and the limit.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "engine_torch/model_state.h"
#include "engine_torch/op_run.h"

namespace plexrl::model {

// Every token in [0, vocab)?
[[nodiscard]] Status check_tokens(const std::string& what, std::span<const std::int32_t> tokens,
                                  std::int64_t vocab);
[[nodiscard]] Status check_finite(const std::string& what, std::span<const float> values);
// What the sampling version must be: 0 with a base, or the published one.
[[nodiscard]] Status check_version(const ModelState& state, std::uint64_t version);

// Runs `body` and turns a library's exception into a Status: no memory is NO_CAPACITY.
[[nodiscard]] Result<bool> guarded(const char* op, const std::function<Result<bool>()>& body);

}  // namespace plexrl::model
