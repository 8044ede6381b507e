// SPDX-License-Identifier: Apache-2.0
#include "core/round_robin_policy.h"

#include <algorithm>

namespace plexrl::core {
namespace {
constexpr std::int64_t kMaxTurnNs = std::int64_t{1} << 60;  // 36 years: damage, not a turn
}

void RoundRobinPolicy::waiting(TenantId tenant, const Offer&) {
  Account& account = accounts_[tenant];
  if (account.waiting) return;
  account.waiting = true;
  if (!account.was_waiting) account.virtual_ns = std::max(account.virtual_ns, service_ns_);
  account.was_waiting = false;
  queue_.emplace(account.virtual_ns, tenant);
}

void RoundRobinPolicy::not_waiting(TenantId tenant) {
  const auto account = accounts_.find(tenant);
  if (account == accounts_.end() || !account->second.waiting) return;
  queue_.erase({account->second.virtual_ns, tenant});
  account->second.waiting = false;
}

void RoundRobinPolicy::gone(TenantId tenant) {
  not_waiting(tenant);
  accounts_.erase(tenant);
  if (turn_ == tenant) turn_ = {};
}

void RoundRobinPolicy::started(TenantId tenant) {
  if (turn_ != tenant || quantum_left() <= 0) turn_used_ns_ = 0;
  turn_ = tenant;
  joined(tenant);
}

void RoundRobinPolicy::joined(TenantId tenant) {
  service_ns_ = std::max(service_ns_, virtual_ns(tenant));
}

void RoundRobinPolicy::charge(TenantId tenant, std::uint32_t share_percent, Duration used) {
  Account& account = accounts_[tenant];
  if (account.waiting) queue_.erase({account.virtual_ns, tenant});
  const std::uint64_t share = std::clamp<std::uint32_t>(share_percent, 1, 100);
  account.virtual_ns += static_cast<std::uint64_t>(used.ns) * 100 / share;
  if (account.waiting) queue_.emplace(account.virtual_ns, tenant);
}

std::optional<TenantId> RoundRobinPolicy::next(const Moment&) const {
  if (queue_.empty()) return std::nullopt;
  const auto holder = accounts_.find(turn_);
  if (holder != accounts_.end() && holder->second.waiting && quantum_left() > 0) return turn_;
  return queue_.begin()->second;
}

std::optional<Duration> RoundRobinPolicy::turn_left(const Runner& runner, TenantId waiter,
                                                    const Moment&) const {
  std::int64_t left = quantum_left();
  const std::uint64_t mine = virtual_ns(runner.tenant);
  const std::uint64_t theirs = virtual_ns(waiter);
  // A tenant with a larger share goes on until its virtual time has passed the waiter's.
  if (waiter != runner.tenant && theirs > mine) {
    const std::uint64_t share = std::clamp<std::uint32_t>(runner.share_percent, 1, 100);
    std::int64_t owed = runner.wall_ns((theirs - mine) / 100 * share + 1);
    if (runner.in_batch()) owed = std::min(owed, left + quantum_.ns);
    left = std::max(left, owed);
  }
  return Duration{std::max<std::int64_t>(left, 0)};
}

std::uint64_t RoundRobinPolicy::virtual_ns(TenantId tenant) const {
  const auto account = accounts_.find(tenant);
  return account == accounts_.end() ? service_ns_ : account->second.virtual_ns;
}

void RoundRobinPolicy::encode(ByteWriter& out) const {
  out.varint(turn_.value);
  out.varint(static_cast<std::uint64_t>(turn_used_ns_));
  out.varint(service_ns_);
  out.varint(accounts_.size());
  for (const auto& [tenant, account] : accounts_) {
    out.varint(tenant.value);
    out.varint(account.virtual_ns);
    out.flag(account.waiting);
  }
}

void RoundRobinPolicy::decode(ByteReader& in) {
  turn_ = TenantId{in.varint()};
  turn_used_ns_ = static_cast<std::int64_t>(in.varint());
  service_ns_ = in.varint();
  if (turn_used_ns_ < 0 || turn_used_ns_ > kMaxTurnNs) in.fail();
  for (std::uint64_t left = in.count(); left > 0 && in.ok(); --left) {
    const TenantId tenant{in.varint()};
    Account& account = accounts_[tenant];
    account.virtual_ns = in.varint();
    account.was_waiting = in.flag();
  }
}

}  // namespace plexrl::core
