// SPDX-License-Identifier: Apache-2.0
// OpClass: what kind of work an op is. In this order inside a tenant, and between tenants where the
// policy says so.
#pragma once

#include "core/types.h"

namespace plexrl::core {

enum class OpClass : std::uint8_t { kTrain, kLogprobs, kRollout };
constexpr std::size_t kOpClasses = 3;
[[nodiscard]] constexpr OpClass class_of(OpKind kind) {
  if (kind == OpKind::kGenerate || kind == OpKind::kLease) return OpClass::kRollout;
  return kind == OpKind::kLogprobs ? OpClass::kLogprobs : OpClass::kTrain;
}

}  // namespace plexrl::core
