// SPDX-License-Identifier: Apache-2.0
// A StateStore that fails on demand: before a write, or after it reached the store underneath,
// which is how a disk fails whose answer got lost.
#pragma once

#include <functional>

#include "store/state_store.h"

namespace plexrl::store {

class FaultyStore final : public StateStore {
 public:
  enum class Fault { kNone, kBefore, kAfter };
  explicit FaultyStore(StateStore& below) : below_(below) {}

  // Asked before every put and erase.
  std::function<Fault()> fault = [] { return Fault::kNone; };
  int writes = 0;

  Status put(std::string_view table, std::uint64_t key, std::uint64_t subkey,
             std::string_view value) override {
    return write([&] { return below_.put(table, key, subkey, value); });
  }
  Result<std::string> get(std::string_view table, std::uint64_t key,
                          std::uint64_t subkey) const override {
    return below_.get(table, key, subkey);
  }
  Status erase(std::string_view table, std::uint64_t key, std::uint64_t last_subkey) override {
    return write([&] { return below_.erase(table, key, last_subkey); });
  }
  Status scan(std::string_view table, const Visitor& visit) const override {
    return below_.scan(table, visit);
  }
  Status begin() override { return below_.begin(); }
  Status commit() override { return below_.commit(); }
  void rollback() override { below_.rollback(); }

 private:
  Status write(const std::function<Status()>& change) {
    ++writes;
    const Fault what = fault();
    if (what == Fault::kBefore) return error(Code::IO, "store: no space left on device");
    const Status status = change();
    return what == Fault::kAfter ? error(Code::IO, "store: input/output error") : status;
  }

  StateStore& below_;
};

}  // namespace plexrl::store
