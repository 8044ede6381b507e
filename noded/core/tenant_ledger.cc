// SPDX-License-Identifier: Apache-2.0
#include "core/tenant_ledger.h"

#include <algorithm>

#include "core/int_math.h"

namespace plexrl::core {
namespace {

// Ops belong to one phase when the pause between them is short against an op, or as short as a
// client that computes a loss in between.
constexpr Duration kShortPause{50 * kMillisecond.ns};
// A bound is not broken by less than this: the first op of a job waits for its model.
constexpr Duration kNoticed{kSecond};

void encode_duration(ByteWriter& out, Duration value) {
  out.varint(static_cast<std::uint64_t>(value.ns));
}

TimePoint decode_time(ByteReader& in) { return TimePoint{decode_duration(in).ns}; }

std::size_t index_of(OpKind kind) { return static_cast<std::size_t>(kind); }
std::size_t index_of(OpClass cls) { return static_cast<std::size_t>(cls); }

std::uint32_t permille(Duration part, Duration whole) {
  if (whole.ns <= 0) return 0;
  const std::uint64_t value =
      mul_div(static_cast<std::uint64_t>(std::max<std::int64_t>(part.ns, 0)), 1000,
              static_cast<std::uint64_t>(whole.ns));
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(value, UINT32_MAX));
}

}  // namespace

const TenantLedger::Row* TenantLedger::find(TenantId tenant) const {
  const auto found = rows_.find(tenant);
  return found == rows_.end() ? nullptr : &found->second;
}

Duration TenantLedger::alone(const Row& row, TimePoint now) {
  const Duration waits = row.blocked ? now - row.blocked_since : Duration{};
  return {(now - row.first).ns - row.blocked_for.ns - waits.ns};
}

void TenantLedger::op_arrived(TenantId tenant, OpKind kind, TimePoint now) {
  Row& row = rows_[tenant];
  if (!row.seen) row.first = now;
  if (row.seen && row.open_ops == 0 && row.last_kind != OpKind::kNone)
    row.pauses[index_of(row.last_kind)].learn(now - row.idle_since);
  row.seen = true;
  ++row.open_ops;
  Phase& phase = row.phases[index_of(class_of(kind))];
  if (++phase.open_ops == 1) maybe_new_phase(phase, alone(row, now));
}

void TenantLedger::maybe_new_phase(Phase& phase, Duration own) {
  if (phase.begun) {
    const Duration longest{std::max(kShortPause.ns, phase.last_ran.ns / 2)};
    if (own.ns - phase.ended.ns <= longest.ns) return;
    phase.service.learn(phase.used);
    phase.period.learn(Duration{own.ns - phase.began.ns});
  }
  phase.begun = true;
  phase.began = own;
  phase.used = {};
}

void TenantLedger::op_left(TenantId tenant, OpKind kind, TimePoint now) {
  const auto found = rows_.find(tenant);
  if (found == rows_.end()) return;  // its last model was removed
  Row& row = found->second;
  Phase& phase = row.phases[index_of(class_of(kind))];
  if (phase.open_ops > 0 && --phase.open_ops == 0) phase.ended = alone(row, now);
  if (row.open_ops == 0 || --row.open_ops > 0) return;
  row.idle_since = now;
  row.last_kind = kind;
}

void TenantLedger::set_waiting(TenantId tenant, bool waiting, TimePoint now) {
  Row& row = rows_[tenant];
  row.waiting = waiting;
  update_blocked(row, now);
}

void TenantLedger::started(TenantId tenant, TimePoint now) {
  Row& row = rows_[tenant];
  ++row.running;
  update_blocked(row, now);
}

void TenantLedger::stopped(TenantId tenant, OpKind kind, Duration ran, TimePoint now) {
  const auto found = rows_.find(tenant);
  if (found == rows_.end()) return;
  Row& row = found->second;
  if (row.running > 0) --row.running;
  row.device.ns += ran.ns;
  Phase& phase = row.phases[index_of(class_of(kind))];
  phase.used.ns += ran.ns;
  phase.last_ran = ran;
  update_blocked(row, now);
}

void TenantLedger::update_blocked(Row& row, TimePoint now) {
  const bool blocked = row.waiting && row.running == 0;
  if (blocked == row.blocked) return;
  if (blocked) {
    row.blocked_since = now;
  } else {
    row.blocked_for.ns += (now - row.blocked_since).ns;
  }
  row.blocked = blocked;
  look_at_bound(row, now);
}

void TenantLedger::look_at_bound(Row& row, TimePoint now) {
  const Duration own = alone(row, now);
  const bool over = row.bound != 0 && row.blocked_for >= kNoticed &&
                    Wide(static_cast<std::uint64_t>((now - row.first).ns)) * 1000 >
                        Wide(static_cast<std::uint64_t>(own.ns)) * row.bound;
  if (over && !row.over) ++row.violations;
  row.over = over;
}

std::optional<TenantView> TenantLedger::view(TenantId tenant, TimePoint now) const {
  const Row* row = find(tenant);
  if (row == nullptr) return std::nullopt;
  TenantView view{0, 1000, row->bound, row->violations};
  if (!row->seen) return view;
  const Duration own = alone(*row, now);
  view.busy_permille = std::min(permille(row->device, own), 1000U);
  view.slowdown_permille =
      std::max(permille(now - row->first, Duration{std::max<std::int64_t>(own.ns, 1)}), 1000U);
  return view;
}

TimePoint TenantLedger::late_at(TenantId tenant) const {
  const Row* row = find(tenant);
  if (row == nullptr || row->bound == 0 || !row->blocked) return kNever;
  const Duration own = alone(*row, row->blocked_since);
  const std::uint64_t wall = mul_div(static_cast<std::uint64_t>(own.ns), row->bound, 1000);
  const std::int64_t noticed = row->blocked_since.ns + kNoticed.ns - row->blocked_for.ns;
  if (wall > std::uint64_t{1} << 60) return kNever;
  return TimePoint{std::max(row->first.ns + static_cast<std::int64_t>(wall), noticed)};
}

std::optional<TenantLedger::Rest> TenantLedger::rest(TenantId tenant) const {
  const Row* row = find(tenant);
  if (row == nullptr || row->open_ops > 0 || row->last_kind == OpKind::kNone) return std::nullopt;
  const Phase& phase = row->phases[index_of(class_of(row->last_kind))];
  const Duration paused{std::max<std::int64_t>(phase.ended.ns - phase.began.ns - phase.used.ns, 0)};
  return Rest{row->idle_since, row->pauses[index_of(row->last_kind)].median(), row->last_kind,
              phase.used, paused};
}

Duration TenantLedger::phase_left(TenantId tenant, OpClass cls, Duration least,
                                  Duration running) const {
  const Row* row = find(tenant);
  if (row == nullptr) return least;
  const Phase& phase = row->phases[index_of(cls)];
  const auto whole = phase.service.median();
  return whole ? std::max(Duration{whole->ns - phase.used.ns - running.ns}, least) : least;
}

std::optional<Duration> TenantLedger::whole_phase(TenantId tenant, OpClass cls) const {
  const Row* row = find(tenant);
  return row == nullptr ? std::nullopt : row->phases[index_of(cls)].service.median();
}

std::optional<Duration> TenantLedger::period(TenantId tenant, OpClass cls) const {
  const Row* row = find(tenant);
  return row == nullptr ? std::nullopt : row->phases[index_of(cls)].period.median();
}

void TenantLedger::encode(ByteWriter& out) const {
  out.varint(rows_.size());
  for (const auto& [tenant, row] : rows_) {
    out.varint(tenant.value);
    encode_row(out, row);
  }
}

void TenantLedger::encode_row(ByteWriter& out, const Row& row) {
  out.varint(row.bound);
  out.varint(row.running);
  for (const bool flag : {row.over, row.seen, row.waiting, row.blocked}) out.flag(flag);
  out.varint(row.violations);
  out.varint(row.open_ops);
  out.u8(static_cast<std::uint8_t>(row.last_kind));
  for (const TimePoint time : {row.first, row.idle_since, row.blocked_since})
    encode_duration(out, {time.ns});
  for (const Duration time : {row.blocked_for, row.device}) encode_duration(out, time);
  for (const Phase& phase : row.phases) encode_phase(out, phase);
  for (const Recent& pause : row.pauses) pause.encode(out);
}

void TenantLedger::encode_phase(ByteWriter& out, const Phase& phase) {
  phase.service.encode(out);
  phase.period.encode(out);
  out.varint(phase.open_ops);
  out.flag(phase.begun);
  for (const Duration time : {phase.used, phase.began, phase.ended, phase.last_ran})
    encode_duration(out, time);
}

TenantLedger::Phase TenantLedger::decode_phase(ByteReader& in) {
  Phase phase;
  phase.service.decode(in);
  phase.period.decode(in);
  phase.open_ops = in.varint();
  phase.begun = in.flag();
  for (Duration* time : {&phase.used, &phase.began, &phase.ended, &phase.last_ran})
    *time = decode_duration(in);
  return phase;
}

TenantLedger::Row TenantLedger::decode_row(ByteReader& in) {
  Row row;
  row.bound = static_cast<std::uint32_t>(in.varint());
  row.running = in.varint();
  for (bool* flag : {&row.over, &row.seen, &row.waiting, &row.blocked}) *flag = in.flag();
  row.violations = in.varint();
  row.open_ops = in.varint();
  const std::uint8_t kind = in.u8();
  if (kind >= kOpKinds || row.blocked != (row.waiting && row.running == 0)) in.fail();
  row.last_kind = static_cast<OpKind>(kind);
  for (TimePoint* time : {&row.first, &row.idle_since, &row.blocked_since}) *time = decode_time(in);
  for (Duration* time : {&row.blocked_for, &row.device}) *time = decode_duration(in);
  for (Phase& phase : row.phases) phase = decode_phase(in);
  for (Recent& pause : row.pauses) pause.decode(in);
  return row;
}

void TenantLedger::decode(ByteReader& in) {
  for (std::uint64_t left = in.count(); left > 0 && in.ok(); --left) {
    const TenantId tenant{in.varint()};
    if (!rows_.emplace(tenant, decode_row(in)).second) in.fail();
  }
}

}  // namespace plexrl::core
