// SPDX-License-Identifier: Apache-2.0
// FifoPolicy: the op that arrived first, whosever it is; nothing is preempted.
#pragma once

#include <map>
#include <set>
#include <utility>

#include "core/policy.h"

namespace plexrl::core {

class FifoPolicy final : public Policy {
 public:
  void waiting(TenantId tenant, const Offer& offer) override;
  void not_waiting(TenantId tenant) override;
  void gone(TenantId tenant) override { not_waiting(tenant); }
  void started(TenantId) override {}
  void joined(TenantId) override {}
  void charge(TenantId, std::uint32_t, Duration) override {}
  void turn_ran(Duration) override {}
  [[nodiscard]] std::optional<TenantId> next(const Moment&) const override;
  [[nodiscard]] std::optional<Duration> turn_left(const Runner&, TenantId,
                                                  const Moment&) const override {
    return std::nullopt;
  }
  [[nodiscard]] bool oldest_op_first() const override { return true; }
  void encode(ByteWriter&) const override {}
  void decode(ByteReader&) override {}

 private:
  std::map<TenantId, std::uint64_t> oldest_;
  std::set<std::pair<std::uint64_t, TenantId>> queue_;
};

}  // namespace plexrl::core
