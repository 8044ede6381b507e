// SPDX-License-Identifier: Apache-2.0
#include "runtime/accounting.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "core/byte_codec.h"
#include "core/int_math.h"
#include "store/async_store.h"

namespace plexrl::runtime {
namespace {

constexpr std::string_view kTable = "usage";
constexpr std::uint64_t kFormat = 3;
constexpr std::uint64_t kWithoutHidden = 1;  // of plexrld before switch_hidden_ns
constexpr std::uint64_t kWithoutLeases = 2;  // of plexrld before the op kind lease
constexpr std::size_t kKindsWithoutLeases = 7;

// Every number of the totals in a fixed order.
template <class Totals, class Visit>
void each_number(std::uint64_t format, Totals& totals, const Visit& visit) {
  const std::size_t kinds = format > kWithoutLeases ? totals.kinds.size() : kKindsWithoutLeases;
  for (auto* value : {&totals.device_ns, &totals.wait_others_ns, &totals.switch_ns, &totals.wall_ns,
                      &totals.commit_stall_ns})
    visit(*value);
  if (format > kWithoutHidden) visit(totals.switch_hidden_ns);
  for (auto* value : {&totals.replayed_ops, &totals.commits}) visit(*value);
  for (std::size_t i = 0; i < kinds; ++i) {
    auto& kind = totals.kinds[i];
    for (auto* value : {&kind.count, &kind.failed, &kind.tokens}) visit(*value);
    for (auto* value : {&kind.run_ns, &kind.queued_ns}) visit(*value);
  }
}

std::string encode(const TenantTotals& totals) {
  core::ByteWriter writer;
  writer.varint(kFormat);
  each_number(kFormat, totals,
              [&](const auto& value) { writer.varint(static_cast<std::uint64_t>(value)); });
  return writer.take();
}

bool decode(std::string_view bytes, TenantTotals* totals) {
  core::ByteReader reader(bytes);
  const std::uint64_t format = reader.varint();
  if (format < kWithoutHidden || format > kFormat) return false;
  each_number(format, *totals, [&](auto& value) {
    value = static_cast<std::remove_reference_t<decltype(value)>>(reader.varint());
  });
  return reader.at_end();
}

}  // namespace

double TenantTotals::slowdown() const {
  const std::int64_t waited = wait_others_ns + switch_ns;
  const std::int64_t alone = wall_ns - waited;
  return alone <= 0 ? 1.0 : static_cast<double>(wall_ns) / static_cast<double>(alone);
}

double ModelTotals::commit_stall_share() const {
  if (training_ns <= 0) return 0;
  return static_cast<double>(commit_stall_ns) / static_cast<double>(training_ns);
}

void Accounting::advance(TimePoint now) {
  const std::int64_t span = last_.ns == 0 ? 0 : now.ns - last_.ns;
  last_ = now;
  if (span <= 0) return;
  sums_.all_ns += span;
  if (!running_.empty()) {
    sums_.held_ns += span;
    share_out(span);
    device_.busy_ns += span;
    count_hidden(span);
  } else if (moving()) {
    sums_.moving_ns += span;
    if (outstanding_ == 0) return;
    device_.switch_exposed_ns += span;
    for (const auto& [model, tenant] : moves_) models_[model].switch_exposed_ns += span;
  }
}

// What the division leaves goes to the first, so that the parts add up to the span.
void Accounting::share_out(std::int64_t span) {
  std::uint64_t rows = 0;
  for (const auto& [tenant, running] : running_) rows += running.rows;
  const auto part = [&](const Running& running) {
    return static_cast<std::int64_t>(
        core::mul_div(static_cast<std::uint64_t>(span), running.rows, rows));
  };
  std::int64_t rest = span;
  for (const auto& [tenant, running] : running_) rest -= part(running);
  for (const auto& [tenant, running] : running_) {
    const std::int64_t own = part(running) + std::exchange(rest, 0);
    const auto row = rows_.find(tenant);
    if (row == rows_.end()) continue;
    row->second.totals.device_ns += own;
    row->second.ran_ns += span;
  }
}

void Accounting::started(TenantId tenant, std::uint64_t rows) {
  Running& running = running_[tenant];
  ++running.ops;
  running.rows += rows;
}

void Accounting::stopped(TenantId tenant, std::uint64_t rows) {
  const auto found = running_.find(tenant);
  PLEXRL_CHECK(found != running_.end() && found->second.rows >= rows, "an op stops once");
  found->second.rows -= rows;
  if (--found->second.ops == 0) running_.erase(found);
}

// Two models of a tenant that move at the same time count once.
void Accounting::count_hidden(std::int64_t span) {
  if (moving()) device_.switch_hidden_ns += span;
  std::set<TenantId> counted;
  for (const auto& [model, tenant] : moves_) {
    models_[model].switch_hidden_ns += span;
    if (!tenant || !counted.insert(tenant).second) continue;
    const auto row = rows_.find(tenant);
    if (row != rows_.end()) row->second.totals.switch_hidden_ns += span;
  }
}

void Accounting::op_ran(TenantId tenant, ModelId model, const OpTimes& times) {
  Row& row = rows_[tenant];
  settle(row);
  row.totals.commit_stall_ns += times.commit_stall_ns;
  ModelTotals& own = models_[model];
  if (times.training) {
    own.training_ns += times.run_ns;
    own.commit_stall_ns += times.commit_stall_ns;
  }
  stood_for_switch(row, own, times.switch_stall_ns);
}

// Never more than was counted as hidden: the engine's clock began when the request reached it.
void Accounting::stood_for_switch(Row& row, ModelTotals& model, std::int64_t ns) {
  ns = std::min({ns, row.totals.device_ns, row.totals.switch_hidden_ns, model.switch_hidden_ns,
                 device_.busy_ns, device_.switch_hidden_ns});
  model.switch_hidden_ns -= ns;
  model.switch_exposed_ns += ns;
  row.totals.device_ns -= ns;
  row.totals.switch_hidden_ns -= ns;
  row.totals.switch_ns += ns;
  device_.busy_ns -= ns;
  device_.switch_hidden_ns -= ns;
  device_.switch_exposed_ns += ns;
}

void Accounting::settle(Row& row) const {
  TenantTotals& totals = row.totals;
  if (row.seen) totals.wall_ns += sums_.all_ns - row.settled.all_ns;
  if (row.outstanding > 0) {
    const std::int64_t own = row.ran_ns - row.settled_ran_ns;
    totals.wait_others_ns += sums_.held_ns - row.settled.held_ns - own;
    totals.switch_ns += sums_.moving_ns - row.settled.moving_ns;
  }
  row.settled = sums_;
  row.settled_ran_ns = row.ran_ns;
}

void Accounting::op_arrived(TenantId tenant) {
  Row& row = rows_[tenant];
  settle(row);
  ++row.outstanding;
  ++outstanding_;
  row.seen = true;
}

void Accounting::op_left(TenantId tenant) {
  Row& row = rows_[tenant];
  PLEXRL_CHECK(row.outstanding > 0, "an op leaves once");
  settle(row);
  --row.outstanding;
  --outstanding_;
}

Status Accounting::load() {
  Status bad;
  PLEXRL_TRY(store_.scan(kTable, [&](std::uint64_t key, std::uint64_t, std::string_view value) {
    Row row;
    if (!decode(value, &row.totals)) {
      bad = error(Code::CORRUPT, "usage of tenant %llu in the store",
                  static_cast<unsigned long long>(key));
      return;
    }
    row.seen = row.totals.wall_ns > 0;
    row.settled = sums_;
    row.stored = value;
    rows_.insert_or_assign(TenantId{key}, std::move(row));
  }));
  return bad;
}

void Accounting::save() {
  store::Batch batch;
  std::vector<TenantId> saved;
  for (auto& [tenant, row] : rows_) {
    settle(row);
    std::string bytes = encode(row.totals);
    if (bytes == row.stored) continue;
    batch.put(kTable, tenant.value, 0, bytes);
    row.stored = std::move(bytes);
    saved.push_back(tenant);
  }
  if (saved.empty()) return;
  store_.write(std::make_shared<const store::Batch>(std::move(batch)),
               [this, saved = std::move(saved)](const Status& status) {
                 if (status.ok()) return;
                 PLEXRL_LOG(kWarning, "store the usage of jobs: %s", status.to_string().c_str());
                 for (const TenantId tenant : saved)
                   if (const auto row = rows_.find(tenant); row != rows_.end())
                     row->second.stored.clear();
               });
}

void Accounting::ended(TenantId tenant) {
  const auto row = rows_.find(tenant);
  if (row == rows_.end()) return;
  settle(row->second);
  row->second.seen = false;
}

void Accounting::forget(TenantId tenant) {
  if (const auto row = rows_.find(tenant); row != rows_.end())
    outstanding_ -= row->second.outstanding;
  rows_.erase(tenant);
  store::Batch batch;
  batch.erase(kTable, tenant.value, 0, 0);
  store_.write(std::make_shared<const store::Batch>(std::move(batch)), [](const Status& status) {
    if (!status.ok()) PLEXRL_LOG(kWarning, "forget a job's usage: %s", status.to_string().c_str());
  });
}

ModelTotals Accounting::model(ModelId id) const {
  const auto found = models_.find(id);
  return found == models_.end() ? ModelTotals{} : found->second;
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
