// SPDX-License-Identifier: Apache-2.0
#include "core/fifo_policy.h"

namespace plexrl::core {

void FifoPolicy::waiting(TenantId tenant, const Offer& offer) {
  const std::uint64_t oldest = offer.oldest;
  const auto [entry, added] = oldest_.try_emplace(tenant, oldest);
  if (!added) queue_.erase({entry->second, tenant});
  entry->second = oldest;
  queue_.emplace(oldest, tenant);
}

void FifoPolicy::not_waiting(TenantId tenant) {
  const auto entry = oldest_.find(tenant);
  if (entry == oldest_.end()) return;
  queue_.erase({entry->second, tenant});
  oldest_.erase(entry);
}

std::optional<TenantId> FifoPolicy::next(const Moment&) const {
  if (queue_.empty()) return std::nullopt;
  return queue_.begin()->second;
}

}  // namespace plexrl::core
