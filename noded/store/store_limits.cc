// SPDX-License-Identifier: Apache-2.0
#include "store/store_limits.h"

#include <cinttypes>
#include <string>

namespace plexrl::store {

Status check_row(std::string_view table, std::size_t value_bytes) {
  if (table.empty() || table.size() > kMaxTableName)
    return error(Code::INVALID_ARGUMENT, "store: a table's name has 1 to %zu bytes, not %zu",
                 kMaxTableName, table.size());
  if (value_bytes > kMaxValueBytes)
    return error(Code::TOO_LARGE, "store: table %s: a value of %zu bytes is over the limit of %zu",
                 std::string(table).c_str(), value_bytes, kMaxValueBytes);
  return {};
}

Status check_batch(const Batch& batch) {
  for (const Batch::Change& change : batch.changes())
    PLEXRL_TRY(check_row(change.table, change.value.size()));
  return {};
}

Status not_found(std::string_view table, std::uint64_t key, std::uint64_t subkey) {
  return error(Code::NOT_FOUND, "store: table %s has no row %" PRIu64 ".%" PRIu64,
               std::string(table).c_str(), key, subkey);
}

}  // namespace plexrl::store
