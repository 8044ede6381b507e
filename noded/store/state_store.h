// SPDX-License-Identifier: Apache-2.0
// StateStore: durable facts of plexrld. sqlite (WAL, synchronous=FULL) in the daemon, memory in
// tests; one conformance suite. Values are opaque byte strings of the caller; the store knows
// tables and keys. A `put`, `erase` or `commit` that returned ok survives kill -9 and power loss.
// Loop thread only: calls are short (one small row); bulk data does not belong here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace plexrl::store {

// Tables are named by their owner: "tenants", "models", "manifests", "ops" (training ops since the
// last commit, for replay), "results" (of training ops, for retried numbers), "versions".
class StateStore {
 public:
  virtual ~StateStore() = default;
  [[nodiscard]] virtual Status put(std::string_view table, std::uint64_t key, std::uint64_t subkey,
                                   std::string_view value) = 0;
  [[nodiscard]] virtual Result<std::string> get(std::string_view table, std::uint64_t key,
                                                std::uint64_t subkey) const = 0;  // NOT_FOUND
  // All subkeys of `key` that are <= last; none is fine.
  [[nodiscard]] virtual Status erase(std::string_view table, std::uint64_t key,
                                     std::uint64_t last_subkey) = 0;
  // In order of (key, subkey).
  using Visitor =
      std::function<void(std::uint64_t key, std::uint64_t subkey, std::string_view value)>;
  [[nodiscard]] virtual Status scan(std::string_view table, const Visitor& visit) const = 0;
  // Several changes as one: begin, puts and erases, commit; rollback undoes all since begin. After
  // a change that failed, commit fails too. A commit that failed has rolled back. Does not nest.
  [[nodiscard]] virtual Status begin() = 0;
  [[nodiscard]] virtual Status commit() = 0;
  virtual void rollback() = 0;
};

// Creates the file (mode 0600) when missing; CORRUPT with the path and the remedy when damaged.
[[nodiscard]] Result<std::unique_ptr<StateStore>> open_sqlite_store(const std::string& path);
[[nodiscard]] std::unique_ptr<StateStore> make_memory_store();

}  // namespace plexrl::store
