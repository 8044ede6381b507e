// SPDX-License-Identifier: Apache-2.0
// Many generate ops of one model: those that come while one is under way go as one.
#include <algorithm>

#include "unit/runtime/node_fixture.h"

namespace plexrl::runtime {
namespace {

constexpr std::uint64_t kDeadly = 666;

class NodeGroups : public NodeFixture {
 protected:
  void start_job() {
    fake_options_.die_at_seed = kDeadly;
    start();
    job_ = open_job(1);
    model_ = model(job_);
    (void)tokens(sample(1));  // the model is on the device
  }
  void take(std::int64_t ms) { fake().options().op_time = Duration{ms * kMillisecond.ns}; }
  std::shared_ptr<Pending> sample(std::uint64_t seed, std::uint64_t request = 0) {
    return submit(job_, model_, 0, generate(0, seed), request);
  }
  std::shared_ptr<Pending> sample_other_rule(std::uint64_t seed) {
    auto args = generate(0, seed);
    args.AsGenerateArgs()->temperature = 0.5F;
    return submit(job_, model_, 0, std::move(args));
  }
  std::vector<std::int32_t> tokens(const std::shared_ptr<Pending>& pending) {
    const OpOutcome outcome = wait(pending);
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.to_string();
    const auto* const result = outcome.reply.value.AsGenerateResult();
    if (result == nullptr || result->sequences.size() != 1) return {};
    return result->sequences[0]->tokens;
  }
  std::size_t fed() {
    std::size_t count = 0;
    for (const auto& [id, op] : node_->ops().all()) count += op.fed();
    return count;
  }
  std::uint64_t started() { return fake().ops_started(); }

  TenantId job_;
  std::uint64_t model_ = 0;
};

TEST_F(NodeGroups, ThoseThatComeMeanwhileGoAsOneWithTheirOwnResults) {
  start_job();
  std::vector<std::vector<std::int32_t>> alone;
  for (std::uint64_t seed = 0; seed < 8; ++seed) alone.push_back(tokens(sample(seed)));
  const std::uint64_t before = started();
  take(20);
  std::vector<std::shared_ptr<Pending>> all;
  for (std::uint64_t seed = 0; seed < 8; ++seed) all.push_back(sample(seed));
  EXPECT_EQ(fed(), 1U);
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    EXPECT_EQ(tokens(all[seed]), alone[seed]) << seed;
    EXPECT_EQ(all[seed]->answers, 1);
  }
  EXPECT_EQ(started(), before + 2) << "the first, and the others as one";
  EXPECT_TRUE(node_->ops().all().empty());
}

TEST_F(NodeGroups, EachIsCountedAndTheTimeIsShared) {
  start_job();
  const auto kind = [&] { return node_->accounting().totals(job_).kinds[1]; };
  const KindTotals before = kind();
  const std::int64_t device = node_->accounting().totals(job_).device_ns;
  take(20);
  std::vector<std::shared_ptr<Pending>> all;
  for (std::uint64_t seed = 0; seed < 5; ++seed) all.push_back(sample(seed));
  std::uint64_t run_ns = 0;
  for (const auto& each : all) run_ns += wait(each).reply.timing->run_ns;
  EXPECT_EQ(kind().count, before.count + 5);
  EXPECT_EQ(kind().tokens, before.tokens + 4 * (2 + 3)) << "of the four: prompt and all but one";
  const auto more = static_cast<std::uint64_t>(node_->accounting().totals(job_).device_ns - device);
  EXPECT_NEAR(static_cast<double>(run_ns), static_cast<double>(more),
              0.2 * static_cast<double>(more));
}

TEST_F(NodeGroups, OtherRulesGoByThemselves) {
  start_job();
  take(20);
  const auto first = sample(1);
  const auto second = sample(2);
  const auto other = sample_other_rule(3);
  const auto third = sample(4);
  const auto other_too = sample_other_rule(5);
  const std::uint64_t before = started();
  for (const auto& each : {first, second, other, third, other_too})
    EXPECT_TRUE(wait(each).status.ok());
  EXPECT_EQ(started(), before + 2);
}

TEST_F(NodeGroups, ACancelledOneLeavesTheOthers) {
  start_job();
  take(50);
  const auto first = sample(1, 41);
  const auto leader = sample(2, 42);
  const auto rider = sample(3, 43);
  const auto last = sample(4, 44);
  EXPECT_TRUE(wait(first).status.ok());
  ASSERT_TRUE(turn_until([&] { return node_->accounting().computes(job_); }));
  const std::uint64_t before = started();
  node_->op_service().cancel(session_, 43);
  EXPECT_EQ(wait(rider).status.code(), Code::CANCELLED);
  node_->op_service().cancel(session_, 42);
  EXPECT_EQ(wait(leader).status.code(), Code::CANCELLED);
  EXPECT_TRUE(wait(last).status.ok());
  EXPECT_EQ(started(), before) << "it was not run again";
  EXPECT_TRUE(node_->ops().all().empty());
}

TEST_F(NodeGroups, WhenNobodyWaitsAnyMoreTheGroupStops) {
  start_job();
  take(5000);
  (void)sample(1, 41);
  (void)sample(2, 42);
  (void)sample(3, 43);
  node_->op_service().cancel(session_, 41);
  ASSERT_TRUE(turn_until([&] { return node_->ops().count(job_) == 2; }));
  ASSERT_TRUE(turn_until([&] { return node_->accounting().computes(job_); }));
  node_->op_service().cancel(session_, 42);
  node_->op_service().cancel(session_, 43);
  EXPECT_TRUE(turn_until([&] { return node_->ops().all().empty(); }));
}

TEST_F(NodeGroups, ASessionThatClosesTakesAllOfItsOwn) {
  start_job();
  take(5000);
  for (std::uint64_t seed = 0; seed < 6; ++seed) (void)sample(seed);
  node_->op_service().session_closed(session_);
  EXPECT_TRUE(turn_until([&] { return node_->ops().all().empty(); }));
}

// As a connection that ends when its first answer is written.
TEST_F(NodeGroups, WhoIsToldMayCancelTheOthers) {
  start_job();
  take(20);
  std::vector<int> answers(6, 0);
  for (std::uint64_t request = 41; request < 47; ++request) {
    SubmitRequest each;
    each.tenant = job_;
    each.session = session_;
    each.request_id = request;
    each.submit.model = model_;
    each.submit.args = generate(0, request);
    each.handler = [this, &answers, request](const OpOutcome&) {
      ++answers[request - 41];
      for (std::uint64_t other = 41; other < 47; ++other)
        if (other != request) node_->op_service().cancel(session_, other);
    };
    node_->op_service().submit(std::move(each));
  }
  EXPECT_TRUE(turn_until([&] { return node_->ops().all().empty(); }));
  EXPECT_EQ(answers, std::vector<int>(6, 1));
  EXPECT_EQ(tokens(sample(1)).size(), 4U);
}

TEST_F(NodeGroups, TheNextGroupGoesWhenTheFirstIsFull) {
  start_job();
  take(10);
  std::vector<std::shared_ptr<Pending>> all;
  const std::uint64_t before = started();
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    auto args = generate(0, seed);
    args.AsGenerateArgs()->samples_per_prompt = 64;
    all.push_back(submit(job_, model_, 0, std::move(args)));
  }
  for (const auto& each : all) {
    const OpOutcome outcome = wait(each);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.to_string();
    EXPECT_EQ(outcome.reply.value.AsGenerateResult()->sequences.size(), 64U);
  }
  EXPECT_GE(started() - before,
            1 + (19 * 64 + SamplingGroups::kMaxRows - 1) / SamplingGroups::kMaxRows);
}

TEST_F(NodeGroups, AGroupMakesWayAndGoesOn) {
  start_job();
  const TenantId other = open_job(2, 2000);
  const std::uint64_t its_model = model(other);
  take(100);
  std::vector<std::shared_ptr<Pending>> all;
  for (std::uint64_t seed = 0; seed < 5; ++seed) all.push_back(sample(seed));
  EXPECT_TRUE(wait(all[0]).status.ok());
  const std::uint64_t before = started();
  EXPECT_TRUE(run(other, its_model, 1, train(1)).status.ok());
  for (const auto& each : all) EXPECT_TRUE(wait(each).status.ok());
  EXPECT_GT(started(), before + 1) << "the group was asked, and began again where it was";
}

// Whoever was in the group when the engine died is by itself afterwards.
TEST_F(NodeGroups, WhoKillsItsEngineTakesNobodyElseAlong) {
  start_job();
  take(5);
  std::vector<std::shared_ptr<Pending>> all;
  for (std::uint64_t seed = 0; seed < 5; ++seed) all.push_back(sample(seed == 3 ? kDeadly : seed));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const OpOutcome outcome = wait(all[i]);
    EXPECT_EQ(outcome.status.code(), i == 3 ? Code::INTERNAL : Code::OK)
        << i << ": " << outcome.status.to_string();
  }
}

TEST_F(NodeGroups, ARemovedModelEndsThemAll) {
  start_job();
  take(100);
  std::vector<std::shared_ptr<Pending>> all;
  for (std::uint64_t seed = 0; seed < 5; ++seed) all.push_back(sample(seed));
  EXPECT_TRUE(wait(all[0]).status.ok());
  ASSERT_TRUE(node_->model_service().remove(job_, ModelId{model_}).ok());
  for (std::size_t i = 1; i < all.size(); ++i)
    EXPECT_EQ(wait(all[i]).status.code(), Code::CANCELLED) << i;
  EXPECT_TRUE(turn_until([&] { return node_->ops().all().empty(); }));
}

TEST_F(NodeGroups, APublishWaitsForAllReaders) {
  start_job();
  ASSERT_TRUE(run(job_, model_, 1, publish()).status.ok());
  take(20);
  std::vector<std::shared_ptr<Pending>> all;
  for (std::uint64_t seed = 0; seed < 4; ++seed)
    all.push_back(submit(job_, model_, 0, generate(1, seed)));
  const auto next = submit(job_, model_, 2, publish());
  EXPECT_TRUE(wait(next).status.ok());
  for (const auto& each : all) {
    ASSERT_TRUE(each->outcome.has_value()) << "the publish came first";
    EXPECT_TRUE(each->outcome->status.ok()) << each->outcome->status.to_string();
  }
}

TEST_F(NodeGroups, GroupsAreNotForClients) {
  start_job();
  auto args = generate();
  args.AsGenerateArgs()->groups.push_back(std::make_unique<wire::GenerateGroupT>());
  EXPECT_EQ(run(job_, model_, 0, std::move(args)).status.code(), Code::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace plexrl::runtime
