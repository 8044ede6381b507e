// SPDX-License-Identifier: Apache-2.0
// What stands between two values in an expression, as Python has it.
#pragma once

#include <string>

#include "chat/budget.h"
#include "chat/value.h"

namespace plexrl::chat {

// + - * / // % ~ == != < <= > >= in, not in. INVALID_ARGUMENT: not between such values, a result
// beyond 64 bits, or a division by 0.
[[nodiscard]] Result<Value> apply_operator(const std::string& sign, const Value& left,
                                           const Value& right, Budget& budget);

}  // namespace plexrl::chat
