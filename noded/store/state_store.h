// SPDX-License-Identifier: Apache-2.0
// StateStore: durable facts of plexrld. sqlite (WAL, synchronous=FULL) in the daemon, memory in
// tests; one conformance suite. Values are opaque byte strings of the caller; the store knows
// tables and keys. What `apply` returned ok for survives kill -9 and power loss. One thread at a
// time; a call takes as long as the disk needs. Bulk data does not belong here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace plexrl::store {

// Puts and erases that are made together, in this order. An erase takes the subkeys first..last of
// `key`; none is fine.
class Batch {
 public:
  struct Change {
    bool erase = false;
    std::string table;
    std::uint64_t key = 0;
    std::uint64_t subkey = 0;  // of an erase: the first one
    std::uint64_t last = 0;    // of an erase
    std::string value;
  };
  void put(std::string_view table, std::uint64_t key, std::uint64_t subkey, std::string_view value);
  void erase(std::string_view table, std::uint64_t key, std::uint64_t first, std::uint64_t last);
  [[nodiscard]] const std::vector<Change>& changes() const { return changes_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }  // what it holds in memory, about

 private:
  std::vector<Change> changes_;
  std::uint64_t bytes_ = 0;
};
using BatchPtr = std::shared_ptr<const Batch>;  // not changed any more

// Tables are named by their owner: "tenants", "models", "manifests", "ops" (training ops since the
// last commit, for replay), "results" (of training ops, for retried numbers), "versions".
class StateStore {
 public:
  virtual ~StateStore() = default;
  // All changes of all batches, in order, or none of them. IO, UNAVAILABLE: none was made, or the
  // disk took them and could not say so; the next change settles that. INVALID_ARGUMENT, TOO_LARGE:
  // see check_row().
  [[nodiscard]] virtual Status apply(std::span<const BatchPtr> batches) = 0;
  [[nodiscard]] virtual Result<std::string> get(std::string_view table, std::uint64_t key,
                                                std::uint64_t subkey) const = 0;  // NOT_FOUND
  // In order of (key, subkey).
  using Visitor =
      std::function<void(std::uint64_t key, std::uint64_t subkey, std::string_view value)>;
  [[nodiscard]] virtual Status scan(std::string_view table, const Visitor& visit) const = 0;

  // One change.
  [[nodiscard]] Status put(std::string_view table, std::uint64_t key, std::uint64_t subkey,
                           std::string_view value);
  // All subkeys of `key` that are <= last.
  [[nodiscard]] Status erase(std::string_view table, std::uint64_t key, std::uint64_t last_subkey);
};

// Creates the file (mode 0600) when missing; CORRUPT with the path and the remedy when damaged.
[[nodiscard]] Result<std::unique_ptr<StateStore>> open_sqlite_store(const std::string& path);
[[nodiscard]] std::unique_ptr<StateStore> make_memory_store();

}  // namespace plexrl::store
