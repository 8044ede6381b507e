// SPDX-License-Identifier: Apache-2.0
// A model that is brought in while another one computes: it costs no waiting, and when it fails or
// is not wanted any more, nothing of it is left. And one that is brought in the place of another.
#include <nlohmann/json.hpp>
#include <utility>

#include "node_fixture.h"

namespace plexrl::runtime {
namespace {

class NodePrefetch : public NodeFixture {
 protected:
  // Two jobs with a full model each, of five segments, on a device of 1024 KiB; the first one's is
  // resident.
  void begin(Duration op_time, std::uint64_t segment_bytes = 40 << 10) {
    fake_options_.segment_bytes = segment_bytes;
    fake_options_.op_time = op_time;
    config_.pools[0].host_memory_mib = 8;
    start();
    a_ = open_job(1, 1000, "full", 2);
    b_ = open_job(2, 1001, "full", 2);
    ma_ = model(a_, "p", wire::TrainMode::Full);
    mb_ = model(b_, "p", wire::TrainMode::Full);
    ASSERT_TRUE(run(a_, ma_, 1, train(3)).status.ok());
    ASSERT_TRUE(run(a_, ma_, 2, optim()).status.ok());
    settle();
    ASSERT_EQ(tier(ma_), "device") << node_->state().table_json();
    ASSERT_EQ(tier(mb_), "host") << node_->state().table_json();
  }
  std::uint64_t free_chunks() {
    const auto table = nlohmann::json::parse(node_->state().table_json());
    return table.at("device").at("free_chunks").get<std::uint64_t>();
  }
  std::string tier(std::uint64_t id) {
    const auto table = nlohmann::json::parse(node_->state().table_json());
    for (const auto& row : table.at("models"))
      if (row.at("model") == id) return row.at("tier");
    return "";
  }

  bool pinned(std::uint64_t id) {
    const auto table = nlohmann::json::parse(node_->state().table_json());
    for (const auto& row : table.at("models"))
      if (row.at("model") == id) return row.at("pinned");
    return false;
  }

  TenantId a_, b_;
  std::uint64_t ma_ = 0, mb_ = 0;
};

TEST_F(NodePrefetch, IsHiddenBehindTheOpThatRuns) {
  begin(Duration{30 * kMillisecond.ns});
  const auto running = submit(a_, ma_, 3, train(4));
  ASSERT_TRUE(turn_until([&] { return node_->accounting().computes(a_); }));
  const auto exposed = node_->accounting().device().switch_exposed_ns;
  const auto next = submit(b_, mb_, 1, train(3));
  ASSERT_TRUE(turn_until([&] { return tier(mb_) == "device"; }));
  EXPECT_FALSE(running->outcome.has_value());
  EXPECT_TRUE(wait(running).status.ok());
  EXPECT_TRUE(wait(next).status.ok());
  node_->accounting().advance(system_clock().now());
  EXPECT_EQ(node_->accounting().device().switch_exposed_ns, exposed);
  EXPECT_GT(node_->accounting().totals(b_).switch_hidden_ns, 0);
  EXPECT_EQ(node_->accounting().totals(b_).switch_ns, 0);
}

TEST_F(NodePrefetch, ThatFailsGivesEverythingBackAndIsTriedAgain) {
  begin(Duration{60 * kMillisecond.ns});
  const std::uint64_t before = free_chunks();
  const auto running = submit(a_, ma_, 3, train(4));
  ASSERT_TRUE(turn_until([&] { return node_->accounting().computes(a_); }));
  fake(2).options().fail_resumes = 3;
  const auto next = submit(b_, mb_, 1, train(3));
  bool tried = false;
  int failures = 0;  // that were seen between two turns of the loop
  ASSERT_TRUE(turn_until([&] {
    const std::string now = tier(mb_);
    if (now == "resuming") tried = true;
    if (now == "host" && std::exchange(tried, false)) {
      EXPECT_EQ(free_chunks(), before);
      ++failures;
    }
    return next->outcome.has_value();
  }));
  EXPECT_GT(failures, 0);
  EXPECT_TRUE(wait(running).status.ok());
  EXPECT_TRUE(next->outcome->status.ok()) << next->outcome->status.to_string();
  EXPECT_TRUE(run(b_, mb_, 2, optim()).status.ok());
  // The same as the work of a model whose moves all went well.
  const TenantId c = open_job(3, 1002, "full", 2);
  const std::uint64_t mc = model(c, "p", wire::TrainMode::Full);
  EXPECT_TRUE(run(c, mc, 1, train(3)).status.ok());
  EXPECT_TRUE(run(c, mc, 2, optim()).status.ok());
  EXPECT_EQ(weights_of(b_, mb_, 3), weights_of(c, mc, 3));
}

TEST_F(NodePrefetch, InThePlaceOfACommittedModelWaitsForNoDisk) {
  config_.pools[0].quantum_ms = 5000;  // the turn ends with the optimizer step, however slow it is
  begin({}, 120 << 10);
  hold_disk();
  const auto step = submit(a_, ma_, 3, train(4));
  const auto optim_step = submit(a_, ma_, 4, optim());
  const auto next = submit(b_, mb_, 1, train(3));
  ASSERT_TRUE(turn_until([&] { return tier(mb_) == "device"; }));
  EXPECT_EQ(tier(ma_), "host");
  EXPECT_EQ(node_->state().manifest(ModelId{ma_})->position.step, 1u) << "the disk is held";
  EXPECT_FALSE(optim_step->outcome.has_value());
  // It comes back from the state that was on its way.
  const auto back = submit(a_, ma_, 5, train(5));
  int turns = 0;
  ASSERT_TRUE(turn_until([&] { return ++turns > 50; }));
  EXPECT_EQ(tier(ma_), "host");
  let_disk_go();
  for (const auto& op : {step, optim_step, next, back}) EXPECT_TRUE(wait(op).status.ok());
  EXPECT_EQ(node_->state().manifest(ModelId{ma_})->position.step, 2u);
}

TEST_F(NodePrefetch, OpsBeginWhileTheEngineStillFills) {
  begin({}, 120 << 10);
  fake(2).options().hold_fills = true;
  const auto hidden = [&] { return node_->accounting().totals(b_).switch_hidden_ns; };
  EXPECT_TRUE(run(b_, mb_, 1, train(3)).status.ok());
  EXPECT_EQ(tier(mb_), "device");
  EXPECT_TRUE(pinned(mb_)) << "its host chunks are being read";
  EXPECT_TRUE(run(b_, mb_, 2, train(4)).status.ok());
  // Who comes next waits until all of it is there, and gone.
  const auto next = submit(a_, ma_, 3, train(4));
  ASSERT_TRUE(turn_until([&] { return tier(mb_) == "suspending"; }));
  fake(2).end_fills();
  EXPECT_TRUE(wait(next).status.ok());
  EXPECT_FALSE(pinned(mb_));
  EXPECT_GT(hidden(), 0);
  EXPECT_TRUE(run(b_, mb_, 3, optim()).status.ok());
}

TEST_F(NodePrefetch, AnEngineThatDiesWhileItFillsCostsNothing) {
  begin({}, 120 << 10);
  fake(2).options().hold_fills = true;
  EXPECT_TRUE(run(b_, mb_, 1, train(3)).status.ok());
  fake(2).options().hold_fills = false;
  fake(2).kill();
  EXPECT_TRUE(run(b_, mb_, 2, optim()).status.ok());
  ASSERT_TRUE(turn_until([&] { return !pinned(mb_); }));
  const TenantId c = open_job(3, 1002, "full", 2);
  const std::uint64_t mc = model(c, "p", wire::TrainMode::Full);
  EXPECT_TRUE(run(c, mc, 1, train(3)).status.ok());
  EXPECT_TRUE(run(c, mc, 2, optim()).status.ok());
  EXPECT_EQ(weights_of(b_, mb_, 3), weights_of(c, mc, 3));
}

TEST_F(NodePrefetch, OfACancelledOpCostsNothingButTheMove) {
  begin(Duration{30 * kMillisecond.ns});
  const std::uint64_t before = free_chunks();
  const auto running = submit(a_, ma_, 3, train(4));
  ASSERT_TRUE(turn_until([&] { return node_->accounting().computes(a_); }));
  const auto next = submit(b_, mb_, 1, train(3), 901);
  node_->op_service().cancel(session_, 901);  // its model is coming in
  EXPECT_EQ(wait(next).status.code(), Code::CANCELLED);
  EXPECT_TRUE(wait(running).status.ok());
  ASSERT_TRUE(turn_until([&] { return tier(mb_) != "resuming"; }));
  // And of a model that is removed meanwhile nothing stays on the device.
  ASSERT_TRUE(node_->model_service().remove(b_, ModelId{mb_}).ok());
  ASSERT_TRUE(turn_until([&] { return tier(mb_).empty(); }));
  EXPECT_EQ(free_chunks(), before);
  EXPECT_TRUE(run(a_, ma_, 4, optim()).status.ok());
}

}  // namespace
}  // namespace plexrl::runtime
