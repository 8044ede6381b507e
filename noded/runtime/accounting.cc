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
  for (auto& [tenant, row] : rows_) {
    if (row.seen) row.totals.wall_ns += span;
    if (tenant == holder_) {
      row.totals.device_ns += span;
    } else if (row.outstanding > 0 && holder_) {
      row.totals.wait_others_ns += span;
    } else if (row.outstanding > 0 && moves_ > 0) {
      row.totals.switch_ns += span;
    }
  }
}

void Accounting::op_arrived(TenantId tenant) {
  Row& row = rows_[tenant];
  ++row.outstanding;
  row.seen = true;
}

void Accounting::op_left(TenantId tenant) {
  Row& row = rows_[tenant];
  PLEXRL_CHECK(row.outstanding > 0, "an op leaves once");
  --row.outstanding;
}

const TenantTotals* Accounting::find(TenantId tenant) const {
  const auto found = rows_.find(tenant);
  return found == rows_.end() ? nullptr : &found->second.totals;
}

}  // namespace plexrl::runtime
