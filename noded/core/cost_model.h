// SPDX-License-Identifier: Apache-2.0
// CostModel: how long ops and moves will take, learnt from those that ended. Medians of the newest
// few, so that single outliers change nothing and a lasting change is followed within three ops.
// Integers only; part of the scheduler's snapshot.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/byte_codec.h"
#include "core/types.h"

namespace plexrl::core {

// What something of a size costs. Sizes are kept apart by powers of two: inside one the cost is
// taken as proportional, as a large op does not tell what a small one costs. A size never seen is
// taken from the nearest power that was.
class SizedCost {
 public:
  void learn(std::uint64_t size, Duration took);
  // None before the first learn(). At most kLongest.
  [[nodiscard]] std::optional<Duration> estimate(std::uint64_t size) const;

  static constexpr Duration kLongest{std::int64_t{1} << 43};  // 2.4 hours

  void encode(ByteWriter& out) const;
  void decode(ByteReader& in);

 private:
  static constexpr std::size_t kSamples = 5;
  struct Bucket {
    std::uint32_t bits = 0;  // width of the sizes
    std::uint32_t next = 0;  // sample to replace
    std::vector<std::uint64_t> rates;
    std::uint64_t median = 0;
  };
  static void update(Bucket& bucket);

  std::vector<Bucket> buckets_;  // by width
};

class CostModel {
 public:
  void learn_op(TenantId tenant, OpKind kind, std::uint64_t tokens, Duration took);
  void learn_move(bool in, std::uint64_t bytes, Duration took);
  void forget(TenantId tenant);

  // From the tenant's own ops of that kind; before the first of them from everybody's; else none.
  [[nodiscard]] std::optional<Duration> op(TenantId tenant, OpKind kind,
                                           std::uint64_t tokens) const;
  // Copying so much in or out; 0 for nothing, and before anything was moved.
  [[nodiscard]] Duration move(bool in, std::uint64_t bytes) const;

  void encode(ByteWriter& out) const;
  void decode(ByteReader& in);

 private:
  std::map<std::pair<TenantId, OpKind>, SizedCost> ops_;
  std::array<SizedCost, kOpKinds> all_ops_;  // by kind
  SizedCost in_;
  SizedCost out_;
};

}  // namespace plexrl::core
