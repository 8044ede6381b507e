// SPDX-License-Identifier: Apache-2.0
// Thousands of random schedules on a simulated device: every op runs in the end, the device is
// never overfull, only ops that may run together do (both checked by the device), and the same
// events give the same actions, also across snapshot and restore.
#include <gtest/gtest.h>

#include "core/byte_codec.h"
#include "unit/core/simulated_device.h"

namespace plexrl::core {
namespace {

constexpr EngineId kLora{1};
constexpr EngineId kFull{2};
constexpr EngineId kOther{3};
constexpr std::uint64_t kCapacity = 100;

SchedulerConfig config_of(std::uint64_t seed) {
  SchedulerConfig config;
  config.device_capacity_bytes = kCapacity;
  static constexpr const char* kPolicies[] = {"fifo", "round-robin", "hrrs", "least-slowdown"};
  config.policy = kPolicies[seed % 4];
  config.quantum = Duration{10 * kMillisecond.ns};
  return config;
}

// A base with five adapters of three tenants, and full-parameter models that do not all fit.
std::vector<ModelId> populate(SimulatedDevice& device) {
  for (const EngineId engine : {kLora, kFull, kOther}) device.add_engine(engine);
  const ModelId base{100};
  device.add_model({base, {}, kLora, {}, 30, 100});
  std::vector<ModelId> models;
  for (std::uint64_t n = 1; n <= 5; ++n) {
    models.push_back({n});
    device.add_model({{n}, {1 + n % 3}, kLora, base, device.random(20), 100});
  }
  device.add_model({{6}, {4}, kFull, {}, 40 + device.random(30), 50});
  device.add_model({{7}, {5}, kOther, {}, 40 + device.random(30), 25});
  models.push_back({6});
  models.push_back({7});
  return models;
}

OpId random_op(SimulatedDevice& device, const std::vector<ModelId>& models) {
  static constexpr OpKind kKinds[] = {
      OpKind::kGenerate,  OpKind::kGenerate, OpKind::kLogprobs, OpKind::kForwardBackward,
      OpKind::kOptimStep, OpKind::kSave,     OpKind::kLease};
  const OpKind kind = kKinds[device.random(7)];
  // A lease alternates with others until its work is done; the slice is about as long as an op.
  const Duration slice{kind == OpKind::kLease ? 20 * kMillisecond.ns : 0};
  const ModelId model = models[device.random(models.size())];
  const auto ms = static_cast<std::int64_t>(device.random(40));
  if (kind != OpKind::kGenerate) return device.add_op(model, kind, 0, ms, slice, slice);
  const std::uint64_t kv = device.random(30);
  const std::uint64_t rows = 1 + device.random(64);
  return device.add_generate(model, kv, ms, rows, device.random(10) == 0);
}

void random_event(SimulatedDevice& device, const std::vector<ModelId>& models, bool faults) {
  const std::uint64_t dice = device.random(100);
  if (dice < 45) {
    random_op(device, models);
  } else if (dice < 52 && !device.idle()) {
    const auto open = device.open_ops();
    device.cancel(open[device.random(open.size())]);
  } else if (dice < 55 && faults) {
    const EngineId engine{1 + device.random(3)};
    if (device.engine_up(engine)) {
      device.kill_engine(engine);
    } else {
      device.add_engine(engine);
    }
  } else {
    device.advance();
  }
}

void finish(SimulatedDevice& device, std::uint64_t seed) {
  device.stop_faults();
  for (const EngineId engine : {kLora, kFull, kOther})
    if (!device.engine_up(engine)) device.add_engine(engine);
  ASSERT_TRUE(device.drain()) << "seed " << seed << ": ops are left that never run";
}

// Who starts beside whom is checked at every start.
TEST(SchedulerProperty, EveryOpRunsInTheEnd) {
  std::size_t largest_batch = 0;
  for (std::uint64_t seed = 1; seed <= 1500 && !testing::Test::HasFailure(); ++seed) {
    SimulatedDevice device(config_of(seed), seed);
    const auto models = populate(device);
    for (int step = 0; step < 150; ++step) random_event(device, models, false);
    finish(device, seed);
    largest_batch = std::max(largest_batch, device.largest_batch());
  }
  EXPECT_GE(largest_batch, 3U);
}

TEST(SchedulerProperty, EveryOpRunsInTheEndAfterFaults) {
  for (std::uint64_t seed = 1; seed <= 1500 && !testing::Test::HasFailure(); ++seed) {
    SimulatedDevice device(config_of(seed), seed,
                           {.move_fails_percent = 20, .park_with_kv_fails_percent = 50});
    const auto models = populate(device);
    for (int step = 0; step < 150; ++step) random_event(device, models, true);
    finish(device, seed);
  }
}

// A full host tier: no model with a rollout under way can be parked. Its rollouts must go on.
TEST(SchedulerProperty, EveryOpRunsThoughModelsWithKvCannotBeParked) {
  for (std::uint64_t seed = 1; seed <= 300 && !testing::Test::HasFailure(); ++seed) {
    SimulatedDevice device(config_of(seed), seed, {.park_with_kv_fails_percent = 100});
    const auto models = populate(device);
    for (int step = 0; step < 150; ++step) random_event(device, models, false);
    ASSERT_TRUE(device.drain()) << "seed " << seed;
  }
}

TEST(SchedulerProperty, SameEventsSameActionsAlsoAcrossRestore) {
  for (std::uint64_t seed = 1; seed <= 300 && !testing::Test::HasFailure(); ++seed) {
    const SimulatedFaults faults{.move_fails_percent = 10, .park_with_kv_fails_percent = 30};
    SimulatedDevice straight(config_of(seed), seed, faults);
    SimulatedDevice restored(config_of(seed), seed, faults);
    std::mt19937_64 cuts(seed);
    const auto models = populate(straight);
    ASSERT_EQ(models, populate(restored));
    for (int step = 0; step < 150; ++step) {
      if (cuts() % 10 == 0) {
        const std::string snapshot = restored.scheduler().snapshot();
        auto again = Scheduler::restore(config_of(seed), snapshot);
        ASSERT_TRUE(again.has_value()) << again.error().to_string();
        EXPECT_EQ(again.value()->snapshot(), snapshot);
        restored.swap_scheduler(std::move(again).value());
      }
      random_event(straight, models, true);
      random_event(restored, models, true);
    }
    ASSERT_EQ(straight.actions(), restored.actions()) << "seed " << seed;
  }
}

TEST(SchedulerProperty, DamagedSnapshotsAreRefused) {
  SimulatedDevice device(config_of(1), 7);
  const auto models = populate(device);
  for (int step = 0; step < 60; ++step) random_event(device, models, true);
  const std::string good = device.scheduler().snapshot();
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    EXPECT_EQ(Scheduler::restore(config_of(1), bad).error().code(), Code::CORRUPT) << at;
    EXPECT_EQ(Scheduler::restore(config_of(1), good.substr(0, at)).error().code(), Code::CORRUPT);
  }
}

// Damage behind a right checksum must be refused or give a scheduler that can be used.
TEST(SchedulerProperty, ForgedSnapshotsDoNoHarm) {
  SimulatedDevice device(config_of(1), 7);
  const auto models = populate(device);
  for (int step = 0; step < 60; ++step) random_event(device, models, true);
  const std::string good = device.scheduler().snapshot();
  std::mt19937_64 random(3);
  for (int round = 0; round < 5000; ++round) {
    std::string body = good.substr(0, good.size() - 4);
    for (int edits = 0; edits < 2; ++edits)
      body[random() % body.size()] = static_cast<char>(random());
    ByteWriter crc;
    crc.u32(crc32(body));
    const auto restored = Scheduler::restore(config_of(1), body + crc.bytes());
    if (restored) (void)restored.value()->step(Tick{}, device.now());
  }
}

}  // namespace
}  // namespace plexrl::core
