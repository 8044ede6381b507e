// SPDX-License-Identifier: Apache-2.0
#include "runtime/accounting.h"

#include "base/check.h"

namespace plexrl::runtime {

double TenantTotals::slowdown() const {
  const std::int64_t waited = wait_others_ns + switch_ns;
  const std::int64_t alone = wall_ns - waited;
  return alone <= 0 ? 1.0 : static_cast<double>(wall_ns) / static_cast<double>(alone);
}

void Accounting::advance(TimePoint now) {
  const std::int64_t span = last_.ns == 0 ? 0 : now.ns - last_.ns;
  last_ = now;
  if (span <= 0) return;
  sums_.all_ns += span;
  if (holder_) {
    sums_.held_ns += span;
    const auto holder = rows_.find(holder_);
    if (holder != rows_.end()) holder->second.totals.device_ns += span;
  } else if (moves_ > 0) {
    sums_.moving_ns += span;
  }
}

void Accounting::settle(Row& row) const {
  TenantTotals& totals = row.totals;
  if (row.seen) totals.wall_ns += sums_.all_ns - row.settled.all_ns;
  if (row.outstanding > 0) {
    const std::int64_t own = totals.device_ns - row.settled_device_ns;
    totals.wait_others_ns += sums_.held_ns - row.settled.held_ns - own;
    totals.switch_ns += sums_.moving_ns - row.settled.moving_ns;
  }
  row.settled = sums_;
  row.settled_device_ns = totals.device_ns;
}

void Accounting::op_arrived(TenantId tenant) {
  Row& row = rows_[tenant];
  settle(row);
  ++row.outstanding;
  row.seen = true;
}

void Accounting::op_left(TenantId tenant) {
  Row& row = rows_[tenant];
  PLEXRL_CHECK(row.outstanding > 0, "an op leaves once");
  settle(row);
  --row.outstanding;
}

TenantTotals& Accounting::totals(TenantId tenant) {
  Row& row = rows_[tenant];
  settle(row);
  return row.totals;
}

const TenantTotals* Accounting::find(TenantId tenant) {
  const auto found = rows_.find(tenant);
  if (found == rows_.end()) return nullptr;
  settle(found->second);
  return &found->second.totals;
}

}  // namespace plexrl::runtime
