// SPDX-License-Identifier: Apache-2.0
#include "core/cost_model.h"

#include <algorithm>
#include <bit>

#include "core/int_math.h"

namespace plexrl::core {
namespace {

// Rates are ns per unit of size in fixed point: a byte takes a fraction of a nanosecond. A time of
// up to 2^43 ns still fits.
constexpr std::uint32_t kFraction = 20;

std::uint32_t width(std::uint64_t size) { return static_cast<std::uint32_t>(std::bit_width(size)); }

std::uint32_t distance(std::uint32_t a, std::uint32_t b) { return a < b ? b - a : a - b; }

}  // namespace

void SizedCost::learn(std::uint64_t size, Duration took) {
  const std::uint64_t units = std::max<std::uint64_t>(size, 1);
  const std::int64_t ns = std::clamp<std::int64_t>(took.ns, 0, kLongest.ns);
  const std::uint64_t rate = (static_cast<std::uint64_t>(ns) << kFraction) / units;
  const std::uint32_t bits = width(units);
  auto bucket = std::find_if(buckets_.begin(), buckets_.end(),
                             [&](const Bucket& each) { return each.bits >= bits; });
  if (bucket == buckets_.end() || bucket->bits != bits)
    bucket = buckets_.insert(bucket, Bucket{bits, 0, {}, 0});
  if (bucket->rates.size() < kSamples) {
    bucket->rates.push_back(rate);
  } else {
    bucket->rates[bucket->next] = rate;
    bucket->next = (bucket->next + 1) % kSamples;
  }
  update(*bucket);
}

void SizedCost::update(Bucket& bucket) {
  std::vector<std::uint64_t> sorted = bucket.rates;
  std::sort(sorted.begin(), sorted.end());
  bucket.median = sorted[sorted.size() / 2];
}

std::optional<Duration> SizedCost::estimate(std::uint64_t size) const {
  const std::uint64_t units = std::max<std::uint64_t>(size, 1);
  const std::uint32_t bits = width(units);
  const Bucket* best = nullptr;
  for (const Bucket& bucket : buckets_)
    if (best == nullptr || distance(bucket.bits, bits) < distance(best->bits, bits)) best = &bucket;
  if (best == nullptr) return std::nullopt;
  const std::uint64_t ns = mul_div(best->median, units, std::uint64_t{1} << kFraction);
  return Duration{static_cast<std::int64_t>(std::min<std::uint64_t>(ns, kLongest.ns))};
}

void SizedCost::encode(ByteWriter& out) const {
  out.varint(buckets_.size());
  for (const Bucket& bucket : buckets_) {
    out.varint(bucket.bits);
    out.varint(bucket.next);
    out.varint(bucket.rates.size());
    for (const std::uint64_t rate : bucket.rates) out.varint(rate);
  }
}

void SizedCost::decode(ByteReader& in) {
  for (std::uint64_t left = in.count(); left > 0 && in.ok(); --left) {
    Bucket bucket;
    const std::uint64_t bits = in.varint();
    const std::uint64_t next = in.varint();
    const std::uint64_t samples = in.varint();
    const bool in_order = buckets_.empty() || buckets_.back().bits < bits;
    if (bits == 0 || bits > 64 || !in_order || samples == 0 || samples > kSamples ||
        next >= kSamples)
      return in.fail();
    bucket.bits = static_cast<std::uint32_t>(bits);
    bucket.next = static_cast<std::uint32_t>(next);
    for (std::uint64_t n = 0; n < samples; ++n) bucket.rates.push_back(in.varint());
    update(bucket);
    buckets_.push_back(std::move(bucket));
  }
}

void CostModel::learn_op(TenantId tenant, OpKind kind, std::uint64_t tokens, Duration took) {
  ops_[{tenant, kind}].learn(tokens, took);
  all_ops_[static_cast<std::size_t>(kind)].learn(tokens, took);
}

void CostModel::learn_move(bool in, std::uint64_t bytes, Duration took) {
  if (bytes > 0) (in ? in_ : out_).learn(bytes, took);
}

void CostModel::forget(TenantId tenant) {
  ops_.erase(ops_.lower_bound({tenant, OpKind::kNone}), ops_.upper_bound({tenant, OpKind::kLease}));
}

std::optional<Duration> CostModel::op(TenantId tenant, OpKind kind, std::uint64_t tokens) const {
  const auto own = ops_.find({tenant, kind});
  if (own != ops_.end()) return own->second.estimate(tokens);
  return all_ops_[static_cast<std::size_t>(kind)].estimate(tokens);
}

Duration CostModel::move(bool in, std::uint64_t bytes) const {
  if (bytes == 0) return {};
  return (in ? in_ : out_).estimate(bytes).value_or(Duration{});
}

void CostModel::encode(ByteWriter& out) const {
  out.varint(ops_.size());
  for (const auto& [key, cost] : ops_) {
    out.varint(key.first.value);
    out.u8(static_cast<std::uint8_t>(key.second));
    cost.encode(out);
  }
  for (const SizedCost& cost : all_ops_) cost.encode(out);
  in_.encode(out);
  out_.encode(out);
}

void CostModel::decode(ByteReader& in) {
  for (std::uint64_t left = in.count(); left > 0 && in.ok(); --left) {
    const TenantId tenant{in.varint()};
    const std::uint8_t kind = in.u8();
    if (kind == 0 || kind >= kOpKinds) return in.fail();
    SizedCost cost;
    cost.decode(in);
    if (!ops_.emplace(std::pair{tenant, static_cast<OpKind>(kind)}, std::move(cost)).second)
      return in.fail();
  }
  for (SizedCost& cost : all_ops_) cost.decode(in);
  in_.decode(in);
  out_.decode(in);
}

}  // namespace plexrl::core
