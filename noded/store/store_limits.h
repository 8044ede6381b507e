// SPDX-License-Identifier: Apache-2.0
// What every StateStore refuses, and the texts of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "store/state_store.h"

namespace plexrl::store {

// A row holds at most one op's arguments or result, so twice the largest frame is never needed.
constexpr std::size_t kMaxValueBytes = std::size_t{128} << 20;
constexpr std::size_t kMaxTableName = 32;

// INVALID_ARGUMENT for a table name that is not 1..32 bytes, TOO_LARGE for the value.
[[nodiscard]] Status check_row(std::string_view table, std::size_t value_bytes);
[[nodiscard]] Status check_batch(const Batch& batch);  // of the first bad row
[[nodiscard]] Status not_found(std::string_view table, std::uint64_t key, std::uint64_t subkey);

}  // namespace plexrl::store
