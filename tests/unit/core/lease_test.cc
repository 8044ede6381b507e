// SPDX-License-Identifier: Apache-2.0
// Leases in the scheduler: an op without an end of its own that is asked to yield.
#include <gtest/gtest.h>

#include "unit/core/simulated_device.h"

namespace plexrl::core {
namespace {

constexpr std::int64_t kMs = kMillisecond.ns;
constexpr std::int64_t kForEver = 1'000'000;

SchedulerConfig config(std::string_view policy) {
  SchedulerConfig config;
  config.device_capacity_bytes = 100;
  config.policy = policy;
  config.quantum = Duration{20 * kMs};
  return config;
}

void add(SimulatedDevice& device, std::uint64_t n, std::uint64_t bytes) {
  device.add_engine({n});
  device.add_model({{n}, {n}, {n}, {}, bytes, 100});
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++found;
  return found;
}

TEST(Lease, ParksWhatDoesNotFitBesideIt) {
  SimulatedDevice device(config("round-robin"), 1);
  add(device, 1, 40);
  add(device, 2, 40);
  add(device, 3, 50);
  for (const ModelId model : {ModelId{1}, ModelId{2}})
    device.add_op(model, OpKind::kOptimStep, 0, 1);
  ASSERT_TRUE(device.drain());
  const OpId lease = device.add_op({3}, OpKind::kLease, 0, kForEver);
  while (device.running() != lease) ASSERT_TRUE(device.advance());
  EXPECT_FALSE(device.resident({1})) << "the least recently used one makes room";
  EXPECT_TRUE(device.resident({2})) << "what fits stays";
}

// Two leases and a model under every policy: nobody waits for ever, though a lease never ends.
TEST(Lease, AlternatesUnderEveryPolicy) {
  for (const char* policy : {"fifo", "round-robin", "hrrs", "least-slowdown"}) {
    SimulatedDevice device(config(policy), 1);
    add(device, 1, 90);
    add(device, 2, 90);
    add(device, 3, 90);
    const Duration slice{50 * kMs};
    const OpId one = device.add_op({1}, OpKind::kLease, 0, kForEver, slice);
    const OpId two = device.add_op({2}, OpKind::kLease, 0, kForEver, slice);
    device.add_op({3}, OpKind::kOptimStep, 0, 5);
    while (device.now().ns < 2000 * kMs) ASSERT_TRUE(device.advance()) << policy;
    EXPECT_EQ(device.open_ops(), (std::vector<OpId>{one, two})) << policy;
    const std::int64_t difference = device.device_ns({1}) - device.device_ns({2});
    EXPECT_LT(std::abs(difference), 120 * kMs) << policy;
    EXPECT_GT(device.started().size(), 20U) << policy;
  }
}

// Two processes of one job share by turns as two jobs do.
TEST(Lease, TwoOfOneJobAlternate) {
  SimulatedDevice device(config("round-robin"), 1);
  device.add_engine({1});
  for (const std::uint64_t n : {1U, 2U}) device.add_model({{n}, {1}, {1}, {}, 90, 100});
  const Duration slice{50 * kMs};
  device.add_op({1}, OpKind::kLease, 0, kForEver, slice);
  device.add_op({2}, OpKind::kLease, 0, kForEver, slice);
  while (device.now().ns < 1000 * kMs) ASSERT_TRUE(device.advance());
  const auto& order = device.started();
  ASSERT_GT(order.size(), 8U);
  for (std::size_t i = 1; i < order.size(); ++i) EXPECT_NE(order[i], order[i - 1]);
}

TEST(Lease, IsNotDisturbedWhileNobodyWaits) {
  SimulatedDevice device(config("round-robin"), 1);
  add(device, 1, 90);
  device.add_op({1}, OpKind::kLease, 0, 400, Duration{50 * kMs});
  ASSERT_TRUE(device.drain());
  EXPECT_EQ(count(device.actions(), "yield"), 0U);
}

TEST(Lease, KeepsItsSliceThoughItsTurnIsOver) {
  SimulatedDevice device(config("round-robin"), 1);
  add(device, 1, 90);
  add(device, 2, 90);
  const OpId lease = device.add_op({1}, OpKind::kLease, 0, kForEver, Duration{300 * kMs});
  while (device.running() != lease) ASSERT_TRUE(device.advance());
  const TimePoint start = device.now();
  device.add_op({2}, OpKind::kOptimStep, 0, 5);
  while (device.running() == lease) ASSERT_TRUE(device.advance());
  EXPECT_GE((device.now() - start).ns, 300 * kMs);
  EXPECT_LT((device.now() - start).ns, 310 * kMs);
}

TEST(Lease, IsAskedAtItsLimitThoughNobodyWaits) {
  SimulatedDevice device(config("fifo"), 1);
  add(device, 1, 90);
  device.add_op({1}, OpKind::kLease, 0, 450, {}, Duration{100 * kMs});
  ASSERT_TRUE(device.drain());
  EXPECT_EQ(count(device.actions(), "yield"), 4U);
}

// slice 0: only the limit counts, whoever waits.
TEST(Lease, WithoutASliceItRunsToItsLimit) {
  SimulatedDevice device(config("round-robin"), 1);
  add(device, 1, 90);
  add(device, 2, 90);
  const OpId lease = device.add_op({1}, OpKind::kLease, 0, kForEver, {}, Duration{700 * kMs});
  while (device.running() != lease) ASSERT_TRUE(device.advance());
  const TimePoint start = device.now();
  const OpId waits = device.add_op({2}, OpKind::kOptimStep, 0, 5);
  EXPECT_EQ(device.scheduler().why(waits).kind, WaitReason::Kind::kOtherTenant);
  EXPECT_EQ(device.scheduler().why(waits).holder, TenantId{1});
  while (device.running() == lease) ASSERT_TRUE(device.advance());
  EXPECT_GE((device.now() - start).ns, 700 * kMs);
}

TEST(Lease, IsAskedWhenItIsCancelled) {
  SimulatedDevice device(config("fifo"), 1);
  add(device, 1, 90);
  const OpId lease = device.add_op({1}, OpKind::kLease, 0, kForEver);
  while (device.running() != lease) ASSERT_TRUE(device.advance());
  device.cancel(lease);
  EXPECT_EQ(count(device.actions(), "yield"), 1U);
  ASSERT_TRUE(device.drain());
}

TEST(Lease, OneThatIsLargerThanTheDeviceIsRefused) {
  SimulatedDevice device(config("fifo"), 1);
  EXPECT_TRUE(device.scheduler().admissible(100, {}).ok());
  EXPECT_EQ(device.scheduler().admissible(101, {}).code(), Code::NO_CAPACITY);
}

}  // namespace
}  // namespace plexrl::core
