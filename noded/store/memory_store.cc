// SPDX-License-Identifier: Apache-2.0
// The StateStore of tests and of benches that must not wait for a disk. Transactions by undo log.
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "store/state_store.h"
#include "store/store_limits.h"

namespace plexrl::store {
namespace {

using Key = std::pair<std::uint64_t, std::uint64_t>;
using Table = std::map<Key, std::string>;

class MemoryStore final : public StateStore {
 public:
  Status put(std::string_view table, std::uint64_t key, std::uint64_t subkey,
             std::string_view value) override {
    PLEXRL_TRY(check_row(table, value.size()));
    Table& rows = tables_[std::string(table)];
    remember(table, rows, {key, subkey});
    rows[{key, subkey}] = std::string(value);
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

  Status erase(std::string_view table, std::uint64_t key, std::uint64_t last_subkey) override {
    PLEXRL_TRY(check_row(table, 0));
    Table& rows = tables_[std::string(table)];
    for (auto row = rows.lower_bound({key, 0});
         row != rows.end() && row->first <= Key{key, last_subkey};) {
      remember(table, rows, row->first);
      row = rows.erase(row);
    }
    return {};
  }

  Status scan(std::string_view table, const Visitor& visit) const override {
    PLEXRL_TRY(check_row(table, 0));
    if (const auto rows = tables_.find(std::string(table)); rows != tables_.end())
      for (const auto& [key, value] : rows->second) visit(key.first, key.second, value);
    return {};
  }

  Status begin() override {
    PLEXRL_CHECK(!undo_, "a transaction is open already");
    undo_.emplace();
    return {};
  }

  Status commit() override {
    PLEXRL_CHECK(undo_, "no transaction is open");
    undo_.reset();
    return {};
  }

  void rollback() override {
    PLEXRL_CHECK(undo_, "no transaction is open");
    for (auto step = undo_->rbegin(); step != undo_->rend(); ++step) {
      Table& rows = tables_[step->table];
      if (step->before) {
        rows[step->key] = std::move(*step->before);
      } else {
        rows.erase(step->key);
      }
    }
    undo_.reset();
  }

 private:
  struct Undo {
    std::string table;
    Key key;
    std::optional<std::string> before;
  };

  void remember(std::string_view table, const Table& rows, Key key) {
    if (!undo_) return;
    const auto row = rows.find(key);
    undo_->push_back(
        {std::string(table), key, row == rows.end() ? std::nullopt : std::optional(row->second)});
  }

  std::map<std::string, Table> tables_;
  std::optional<std::vector<Undo>> undo_;
};

}  // namespace

std::unique_ptr<StateStore> make_memory_store() { return std::make_unique<MemoryStore>(); }

}  // namespace plexrl::store
