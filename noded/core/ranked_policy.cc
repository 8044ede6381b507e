// SPDX-License-Identifier: Apache-2.0
#include "core/ranked_policy.h"

#include <algorithm>
#include <utility>

#include "core/int_math.h"

namespace plexrl::core {
namespace {

// Of an op before anything was learnt of its kind.
constexpr Duration kGuess{kSecond};
// Lag in quanta, and at most: a quarter of an hour is a long phase in the literature.
constexpr std::int64_t kLagQuanta = 20;
constexpr Duration kLongestLag{900 * kSecond.ns};
// An op that has waited for a minute and sixteen times its own cost goes first, whoever else waits.
constexpr Duration kPatience{60 * kSecond.ns};
constexpr std::int64_t kPatienceCosts = 16;
// Who has the device keeps it for so many times the cost of the switch: so at most a fifth of the
// time goes to switches, though everybody always waits.
constexpr std::int64_t kTurnSwitches = 4;

constexpr std::int64_t kMaxTurnNs = std::int64_t{1} << 60;  // 36 years: damage, not a turn

std::uint64_t unsigned_ns(Duration time) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(time.ns, 0));
}

std::uint64_t weighted(Duration used, std::uint32_t share_percent) {
  return mul_div(unsigned_ns(used), 100, std::clamp<std::uint32_t>(share_percent, 1, 100));
}

}  // namespace

void RankedPolicy::waiting(TenantId tenant, const Offer& offer) {
  Account& account = accounts_[tenant];
  if (account.row == kNoRow) {
    if (!account.was_waiting) come_back(account, offer);
    account.was_waiting = false;
    account.row = rows_.size();
    rows_.emplace_back();
  }
  rows_[account.row] = Row{tenant, offer, account.virtual_ns};
}

// Who has rested has saved up half a lag at most, so that one who is away for the moment between
// two ops loses nothing, and one who comes back after hours does not hold the others up.
void RankedPolicy::come_back(Account& account, const Offer& offer) const {
  const std::uint64_t credit =
      weighted(Duration{kLagQuanta * quantum_.ns / 2}, offer.share_percent);
  account.virtual_ns = std::max(account.virtual_ns, floor_ns_ - std::min(floor_ns_, credit));
}

void RankedPolicy::not_waiting(TenantId tenant) {
  const auto account = accounts_.find(tenant);
  if (account == accounts_.end() || account->second.row == kNoRow) return;
  const std::size_t row = std::exchange(account->second.row, kNoRow);
  if (row + 1 < rows_.size()) {
    rows_[row] = rows_.back();
    accounts_.at(rows_[row].tenant).row = row;
  }
  rows_.pop_back();
}

void RankedPolicy::gone(TenantId tenant) {
  not_waiting(tenant);
  accounts_.erase(tenant);
  if (turn_ == tenant) turn_ = {};
}

void RankedPolicy::started(TenantId tenant) {
  if (turn_ != tenant) turn_used_ = {};
  turn_ = tenant;
  joined(tenant);
}

void RankedPolicy::joined(TenantId tenant) {
  floor_ns_ = std::max(floor_ns_, std::min(least_virtual(), virtual_ns(tenant)));
}

void RankedPolicy::charge(TenantId tenant, std::uint32_t share_percent, Duration used) {
  Account& account = accounts_[tenant];
  account.virtual_ns += weighted(used, share_percent);
  if (account.row != kNoRow) rows_[account.row].virtual_ns = account.virtual_ns;
}

Duration RankedPolicy::known(Duration predicted) { return predicted.ns > 0 ? predicted : kGuess; }

Duration RankedPolicy::switch_cost(const Offer& offer, std::uint64_t free_bytes) const {
  if (offer.move_bytes == 0) return {};
  const std::uint64_t out = offer.move_bytes - std::min(offer.move_bytes, free_bytes);
  return {costs_.move(true, offer.move_bytes).ns + costs_.move(false, out).ns};
}

std::uint64_t RankedPolicy::least_virtual() const {
  std::uint64_t least = ~std::uint64_t{0};
  for (const Row& row : rows_) least = std::min(least, row.virtual_ns);
  return least;
}

// Long enough for the phase under way to go on to its end: twice the whole of it.
std::uint64_t RankedPolicy::lag_ns(const Offer& offer) const {
  const Duration floor{kLagQuanta * quantum_.ns};
  const Duration lag{
      std::min(std::max(floor.ns, 2 * std::max(offer.phase.ns, offer.whole.ns)), kLongestLag.ns)};
  return weighted(std::max(lag, floor), offer.share_percent);
}

RankedPolicy::Candidate RankedPolicy::candidate(const Row& row, const Moment& moment) const {
  Candidate result;
  result.offer = &row.offer;
  result.tenant = row.tenant;
  result.waited = moment.now - row.offer.since;
  result.switching = switch_cost(row.offer, moment.free_bytes);
  weigh(result);
  return result;
}

// Larger goes first; what is equal is compared by the policy.
int RankedPolicy::rank(const Row& row, const Candidate& candidate, std::uint64_t least,
                       TimePoint now) const {
  const Duration cost{known(row.offer.service).ns + candidate.switching.ns};
  if (candidate.waited.ns > kPatience.ns + kPatienceCosts * cost.ns) return 3;
  if (row.virtual_ns - least > lag_ns(row.offer)) return 0;
  return now >= row.offer.late_at ? 2 : 1;
}

bool RankedPolicy::before(int rank_a, const Candidate& a, int rank_b, const Candidate& b) const {
  if (rank_a != rank_b) return rank_a > rank_b;
  if (rank_a == 1) {
    if (by_class() && a.offer->cls != b.offer->cls) return a.offer->cls < b.offer->cls;
    const Wide mine = Wide{a.gain} * b.price;
    const Wide theirs = Wide{b.gain} * a.price;
    if (mine != theirs) return mine > theirs;
  }
  return a.offer->oldest < b.offer->oldest;
}

std::optional<TenantId> RankedPolicy::next(const Moment& moment) const {
  if (rows_.empty()) return std::nullopt;
  const Row* const holder = row_of(turn_);
  if (holder != nullptr && turn_used_ < quantum_) return turn_;
  const std::uint64_t least = least_virtual();
  Candidate best;
  int best_rank = -1;
  for (const Row& row : rows_) {
    const Candidate each = candidate(row, moment);
    const int each_rank = rank(row, each, least, moment.now);
    if (best_rank >= 0 && !before(each_rank, each, best_rank, best)) continue;
    best = each;
    best_rank = each_rank;
  }
  const bool keep =
      holder != nullptr && best_rank < 3 && turn_used_.ns < kTurnSwitches * best.switching.ns;
  return keep ? turn_ : best.tenant;
}

std::optional<Duration> RankedPolicy::turn_left(const Runner& runner, TenantId waiter,
                                                const Moment& moment) const {
  const Row* const row = row_of(waiter);
  if (row == nullptr || waiter == runner.tenant)
    return Duration{std::max<std::int64_t>(quantum_.ns - turn_used_.ns, 0)};
  const Duration switching = switch_cost(row->offer, moment.free_bytes);
  // Training and log-probabilities let a job's next rollouts begin; they need not wait for long.
  const bool higher = row->offer.cls != OpClass::kRollout;
  const std::int64_t turn =
      std::max(quantum_.ns, (higher ? 1 : kTurnSwitches) * switching.ns) - turn_used_.ns;
  const std::uint64_t mine = virtual_ns(runner.tenant);
  const std::uint64_t theirs = row->virtual_ns;
  // Who is behind the waiter goes on until it has caught up; training may be ahead by its lag.
  const std::uint64_t allowed = mine + (higher ? lag_ns(row->offer) : 0);
  const std::uint64_t behind = theirs > allowed ? theirs - allowed : 0;
  const std::uint64_t share = std::clamp<std::uint32_t>(runner.share_percent, 1, 100);
  std::int64_t owed = runner.wall_ns(std::min<std::uint64_t>(
      mul_div(behind, share, 100), static_cast<std::uint64_t>(kLongestLag.ns)));
  if (runner.in_batch()) owed = std::min(owed, turn + quantum_.ns);
  // What runs for longer than expected has the more left, and gives way to what is surely shorter.
  const bool finishes = finishes_first() && goes_first(runner, *row, moment);
  const std::int64_t beyond = finishes ? runner.phase_left.ns : 0;
  return Duration{std::max<std::int64_t>({turn, owed, beyond, 0})};
}

bool RankedPolicy::stays_ahead(const Runner& holder, TenantId waiter, const Moment& moment) const {
  const Row* const row = row_of(waiter);
  // Who would have to be brought in may push the holder out: two switches for the one phase.
  return row == nullptr || !finishes_first() || turn_used_ < quantum_ ||
         switch_cost(row->offer, moment.free_bytes).ns > 0 || goes_first(holder, *row, moment);
}

// As the policy would choose if the runner's phase came now.
bool RankedPolicy::goes_first(const Runner& runner, const Row& waiter, const Moment& moment) const {
  Row row{runner.tenant, {}, virtual_ns(runner.tenant)};
  row.offer.since = moment.now;
  row.offer.service = row.offer.phase = runner.phase_left;
  row.offer.whole = runner.whole;
  row.offer.period = runner.period;
  row.offer.late_at = TimePoint{INT64_MAX};
  row.offer.share_percent = runner.share_percent;
  const Candidate mine = candidate(row, moment);
  const Candidate theirs = candidate(waiter, moment);
  const std::uint64_t least = std::min(row.virtual_ns, least_virtual());
  return before(rank(row, mine, least, moment.now), mine, rank(waiter, theirs, least, moment.now),
                theirs);
}

std::optional<TenantId> RankedPolicy::holder() const {
  return turn_ ? std::optional(turn_) : std::nullopt;
}

const RankedPolicy::Row* RankedPolicy::row_of(TenantId tenant) const {
  const auto account = accounts_.find(tenant);
  if (account == accounts_.end() || account->second.row == kNoRow) return nullptr;
  return &rows_[account->second.row];
}

std::uint64_t RankedPolicy::virtual_ns(TenantId tenant) const {
  const auto account = accounts_.find(tenant);
  return account == accounts_.end() ? floor_ns_ : account->second.virtual_ns;
}

void RankedPolicy::encode(ByteWriter& out) const {
  out.varint(turn_.value);
  out.varint(static_cast<std::uint64_t>(turn_used_.ns));
  out.varint(floor_ns_);
  out.varint(accounts_.size());
  for (const auto& [tenant, account] : accounts_) {
    out.varint(tenant.value);
    out.varint(account.virtual_ns);
    out.flag(account.row != kNoRow);
  }
}

void RankedPolicy::decode(ByteReader& in) {
  turn_ = TenantId{in.varint()};
  turn_used_.ns = static_cast<std::int64_t>(in.varint());
  floor_ns_ = in.varint();
  if (turn_used_.ns < 0 || turn_used_.ns > kMaxTurnNs) in.fail();
  for (std::uint64_t left = in.count(); left > 0 && in.ok(); --left) {
    const TenantId tenant{in.varint()};
    Account& account = accounts_[tenant];
    account.virtual_ns = in.varint();
    account.was_waiting = in.flag();
  }
}

}  // namespace plexrl::core
