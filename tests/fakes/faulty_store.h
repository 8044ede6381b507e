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

  // Asked before every transaction.
  std::function<Fault()> fault = [] { return Fault::kNone; };
  // And for each of its batches, whatever is written beside it: kBefore counts most.
  std::function<Fault(const Batch&)> of_batch = [](const Batch&) { return Fault::kNone; };
  int writes = 0;

  Status apply(std::span<const BatchPtr> batches) override {
    ++writes;
    Fault what = fault();
    for (const BatchPtr& batch : batches)
      if (const Fault one = of_batch(*batch); one != Fault::kNone && what != Fault::kBefore)
        what = one;
    if (what == Fault::kBefore) return error(Code::IO, "store: no space left on device");
    const Status status = below_.apply(batches);
    return what == Fault::kAfter ? error(Code::IO, "store: input/output error") : status;
  }
  Result<std::string> get(std::string_view table, std::uint64_t key,
                          std::uint64_t subkey) const override {
    return below_.get(table, key, subkey);
  }
  Status scan(std::string_view table, const Visitor& visit) const override {
    return below_.scan(table, visit);
  }

 private:
  StateStore& below_;
};

}  // namespace plexrl::store
