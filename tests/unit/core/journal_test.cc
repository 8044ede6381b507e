// SPDX-License-Identifier: Apache-2.0
#include "core/journal.h"

#include <gtest/gtest.h>

#include <random>

#include "core/byte_codec.h"
#include "unit/core/simulated_device.h"

namespace plexrl::core {
namespace {

SchedulerConfig config() {
  SchedulerConfig config;
  config.device_capacity_bytes = 100;
  config.policy = "round-robin";
  config.quantum = Duration{5 * kMillisecond.ns};
  return config;
}

// A run of two tenants that do not fit together, up to `ops` ops.
void run(SimulatedDevice& device, int ops) {
  device.add_engine({1});
  device.add_engine({2});
  device.add_model({{1}, {1}, {1}, {}, 60, 100});
  device.add_model({{2}, {2}, {2}, {}, 60, 50});
  for (int i = 0; i < ops; ++i) {
    const auto kind = i % 3 == 0 ? OpKind::kForwardBackward : OpKind::kGenerate;
    device.add_op({1 + device.random(2)}, kind, kind == OpKind::kGenerate ? 10 : 0, 12);
    device.advance();
  }
  ASSERT_TRUE(device.drain());
}

std::string journal_of(const SimulatedDevice& device, std::size_t from,
                       const std::string& snapshot) {
  std::string bytes = encode_header({.config_hash = 77, .config = config(), .snapshot = snapshot});
  auto scheduler = snapshot.empty() ? Scheduler::create(config()).value()
                                    : Scheduler::restore(config(), snapshot).value();
  for (std::size_t i = from; i < device.log().size(); ++i) {
    const auto& [event, at] = device.log()[i];
    bytes += encode_record(event, at, scheduler->step(event, at));
  }
  return bytes;
}

TEST(Journal, AReplayGivesTheIdenticalActions) {
  SimulatedDevice device(config(), 4);
  run(device, 60);
  const std::string bytes = journal_of(device, 0, "");
  const auto segment = decode_segment(bytes);
  ASSERT_TRUE(segment.has_value()) << segment.error().to_string();
  EXPECT_EQ(segment->header.config_hash, 77u);
  const auto actions = replay(*segment);
  ASSERT_TRUE(actions.has_value()) << actions.error().to_string();
  std::string text;
  for (const Actions& each : *actions) text += SimulatedDevice::describe(each);
  EXPECT_EQ(text, device.actions());
}

TEST(Journal, ASegmentMayBeginInTheMiddleWithASnapshot) {
  SimulatedDevice device(config(), 4);
  run(device, 60);
  auto scheduler = Scheduler::create(config()).value();
  const std::size_t middle = device.log().size() / 2;
  for (std::size_t i = 0; i < middle; ++i)
    (void)scheduler->step(device.log()[i].first, device.log()[i].second);
  const std::string bytes = journal_of(device, middle, scheduler->snapshot());
  const auto segment = decode_segment(bytes);
  ASSERT_TRUE(segment.has_value());
  EXPECT_TRUE(replay(*segment).has_value());
  EXPECT_EQ(segment->records.size(), device.log().size() - middle);
}

TEST(Journal, AReplayThatDiffersSaysWhere) {
  SimulatedDevice device(config(), 4);
  run(device, 10);
  const std::string bytes = journal_of(device, 0, "");
  auto segment = decode_segment(bytes);
  ASSERT_TRUE(segment.has_value());
  segment->records[6].actions_crc ^= 1;
  const auto replayed = replay(*segment);
  EXPECT_EQ(replayed.error().code(), Code::CORRUPT);
  EXPECT_NE(replayed.error().text().find("record 7 "), std::string::npos);
}

TEST(Journal, ATornTailIsNoError) {
  SimulatedDevice device(config(), 4);
  run(device, 5);
  const std::string bytes = journal_of(device, 0, "");
  const std::size_t records = decode_segment(bytes)->records.size();
  for (std::size_t cut = 1; cut < 15; ++cut) {
    const auto segment = decode_segment(std::string_view(bytes).substr(0, bytes.size() - cut));
    ASSERT_TRUE(segment.has_value()) << cut;
    EXPECT_EQ(segment->records.size(), records - 1);
    EXPECT_GT(segment->torn_bytes, 0u);
  }
}

TEST(Journal, DamageInsideIsNamed) {
  SimulatedDevice device(config(), 4);
  run(device, 5);
  const std::string good = journal_of(device, 0, "");
  int refused = 0;
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 2);
    const auto segment = decode_segment(bad);
    // A longer length looks like a torn tail; everything else is found.
    if (!segment.has_value()) {
      ++refused;
    } else {
      EXPECT_GT(segment->torn_bytes, 0u) << at;
    }
  }
  EXPECT_GT(refused, static_cast<int>(good.size() / 2));
  EXPECT_EQ(decode_segment("").error().code(), Code::CORRUPT);
}

TEST(Journal, HostileRecordsDoNoHarm) {
  const std::string head = encode_header({.config_hash = 1, .config = config(), .snapshot = ""});
  std::mt19937_64 random(9);
  for (int round = 0; round < 20000; ++round) {
    std::string payload(random() % 24, '\0');
    for (char& byte : payload)
      byte = static_cast<char>(random() % 3 == 0 ? random() : random() % 14);
    ByteWriter frame;
    frame.u32(static_cast<std::uint32_t>(payload.size()));
    frame.u32(crc32(payload));
    (void)decode_segment(head + frame.bytes() + payload);
  }
}

TEST(Journal, EveryEventSurvivesTheCoding) {
  const std::vector<Event> events = {ModelAdded{{1}, {2}, {3}, {4}, ~std::uint64_t{0}, 25},
                                     ModelRemoved{{5}},
                                     OpArrived{{6}, {7}, OpKind::kLease, 8, 9, {10}, {11}},
                                     OpCancelled{{10}},
                                     OpYielded{{11}},
                                     OpFinished{{12}},
                                     ModelResumed{{13}},
                                     ModelParked{{14}},
                                     MoveFailed{{15}, false},
                                     EngineUp{{16}},
                                     EngineDown{{17}},
                                     Tick{},
                                     TenantBound{{18}, 1350}};
  ASSERT_EQ(events.size(), std::variant_size_v<Event>);
  std::string bytes = encode_header({.config_hash = 1, .config = config(), .snapshot = ""});
  for (std::size_t i = 0; i < events.size(); ++i)
    bytes += encode_record(events[i], TimePoint{static_cast<std::int64_t>(i)}, {});
  const auto segment = decode_segment(bytes);
  ASSERT_TRUE(segment.has_value()) << segment.error().to_string();
  std::string again = encode_header(segment->header);
  for (const JournalRecord& record : segment->records)
    again += encode_record(record.event, record.at, {});
  EXPECT_EQ(again, bytes);
  EXPECT_FALSE(std::get<MoveFailed>(segment->records[8].event).was_resume);
  EXPECT_EQ(std::get<OpArrived>(segment->records[2].event).slice, Duration{10});
  EXPECT_EQ(std::get<OpArrived>(segment->records[2].event).limit, Duration{11});
  EXPECT_EQ(std::get<ModelAdded>(segment->records[0].event).device_bytes, ~std::uint64_t{0});
}

}  // namespace
}  // namespace plexrl::core
