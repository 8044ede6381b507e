// SPDX-License-Identifier: Apache-2.0
// The StateStore of tests and of benches that must not wait for a disk.
#include <map>
#include <utility>

#include "store/state_store.h"
#include "store/store_limits.h"

namespace plexrl::store {
namespace {

using Key = std::pair<std::uint64_t, std::uint64_t>;
using Table = std::map<Key, std::string>;

class MemoryStore final : public StateStore {
 public:
  Status apply(std::span<const BatchPtr> batches) override {
    for (const BatchPtr& batch : batches) PLEXRL_TRY(check_batch(*batch));
    for (const BatchPtr& batch : batches)
      for (const Batch::Change& change : batch->changes()) make(change);
    return {};
  }

  Result<std::string> get(std::string_view table, std::uint64_t key,
                          std::uint64_t subkey) const override {
    PLEXRL_TRY(check_row(table, 0));
    if (const auto rows = tables_.find(std::string(table)); rows != tables_.end())
      if (const auto row = rows->second.find({key, subkey}); row != rows->second.end())
        return row->second;
    return not_found(table, key, subkey);
  }

  Status scan(std::string_view table, const Visitor& visit) const override {
    PLEXRL_TRY(check_row(table, 0));
    if (const auto rows = tables_.find(std::string(table)); rows != tables_.end())
      for (const auto& [key, value] : rows->second) visit(key.first, key.second, value);
    return {};
  }

 private:
  void make(const Batch::Change& change) {
    Table& rows = tables_[change.table];
    if (!change.erase) {
      rows[{change.key, change.subkey}] = change.value;
    } else if (change.subkey <= change.last) {
      rows.erase(rows.lower_bound({change.key, change.subkey}),
                 rows.upper_bound({change.key, change.last}));
    }
  }

  std::map<std::string, Table> tables_;
};

}  // namespace

std::unique_ptr<StateStore> make_memory_store() { return std::make_unique<MemoryStore>(); }

}  // namespace plexrl::store
