// SPDX-License-Identifier: Apache-2.0
// The policies that compare all who wait: classes, shares, bounds, and how jobs fare under them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "unit/core/simulated_device.h"

namespace plexrl::core {
namespace {

constexpr std::int64_t kMs = kMillisecond.ns;
constexpr const char* kRanked[] = {"hrrs", "least-slowdown"};

SchedulerConfig config(std::string_view policy, std::uint64_t capacity = 100) {
  SchedulerConfig config;
  config.device_capacity_bytes = capacity;
  config.policy = policy;
  config.quantum = Duration{20 * kMs};
  return config;
}

// Model n of tenant n in engine n.
void add(SimulatedDevice& device, std::uint64_t n, std::uint64_t bytes, std::uint32_t share = 100) {
  device.add_engine({n});
  device.add_model({{n}, {n}, {n}, {}, bytes, share});
}

// Every finished op of the tenant is followed by one like it at once, so `depth` always wait.
void keep_busy(SimulatedDevice& device, std::uint64_t tenant, OpKind kind, std::int64_t ms,
               int depth, std::set<OpId>& mine) {
  for (int n = 0; n < depth; ++n) mine.insert(device.add_op({tenant}, kind, 0, ms));
  device.on_finish = [&device, tenant, kind, ms, &mine,
                      next = std::move(device.on_finish)](OpId id) {
    if (mine.erase(id) != 0) mine.insert(device.add_op({tenant}, kind, 0, ms));
    if (next) next(id);
  };
}

TEST(RankedPolicies, AnotherJobsTrainingInterruptsARollout) {
  for (const char* policy : kRanked) {
    SimulatedDevice device(config(policy), 1);
    add(device, 1, 40);
    add(device, 2, 40);
    device.add_op({1}, OpKind::kGenerate, 10, 2000);
    device.add_op({2}, OpKind::kOptimStep, 0, 5);
    while (device.started().size() < 2) ASSERT_TRUE(device.advance());
    EXPECT_EQ(device.started()[1], OpId{2}) << policy;
    EXPECT_LT(device.now().ns, 60 * kMs) << policy;
    ASSERT_TRUE(device.drain());
  }
}

// What is left of a rollout and what another job's training takes, once both are known.
struct Cut {
  std::int64_t rollout_ms;
  std::int64_t train_ms;
  bool interrupts;
};

// Tenant 1 rolls out, tenant 2 trains; known after some rounds. Then the training comes when the
// rollout has 50 ms left, and its turn of 20 ms is over.
bool interrupted(const char* policy, const Cut& cut) {
  SimulatedDevice device(config(policy), 1);
  add(device, 1, 40);
  add(device, 2, 40);
  const auto round = [&](std::int64_t before_end_ms) {
    bool over = false;
    device.add_op({1}, OpKind::kGenerate, 0, cut.rollout_ms);
    device.after(cut.rollout_ms - before_end_ms,
                 [&] { device.add_op({2}, OpKind::kForwardBackward, 0, cut.train_ms); });
    device.after(1000, [&] { over = true; });
    while (!over) EXPECT_TRUE(device.advance());
  };
  for (int n = 0; n < 5; ++n) round(-10);
  const std::size_t before = device.started().size();
  round(50);
  return device.started().size() > before + 2;  // the rollout began again
}

TEST(RankedPolicies, ARolloutThatIsNearlyDoneIsNotInterruptedByLongerTraining) {
  for (const Cut& cut : {Cut{200, 400, false}, Cut{200, 10, true}}) {
    EXPECT_EQ(interrupted("least-slowdown", cut), cut.interrupts) << cut.train_ms;
    EXPECT_TRUE(interrupted("hrrs", cut)) << cut.train_ms << ": classes come first";
  }
}

// Ten ops of 100 ms, of which the job is ahead of its share after a few: its lag is that of the
// whole phase, not of what is left.
TEST(RankedPolicies, APhaseIsNotCutShortNearItsEnd) {
  SimulatedDevice device(config("least-slowdown"), 1);
  add(device, 1, 40);
  add(device, 2, 40);
  std::vector<OpId> first;
  for (int round = 0; round < 6; ++round) {
    bool over = false;
    first.clear();
    const std::size_t before = device.started().size();
    for (int n = 0; n < 10; ++n)
      first.push_back(device.add_op({1}, OpKind::kForwardBackward, 0, 100));
    device.after(150, [&] { device.add_op({2}, OpKind::kForwardBackward, 0, 900); });
    device.after(10000, [&] { over = true; });
    while (!over) ASSERT_TRUE(device.advance());
    if (round < 5) continue;
    const auto& started = device.started();
    for (std::size_t n = 0; n < first.size(); ++n) EXPECT_EQ(started[before + n], first[n]) << n;
  }
}

TEST(RankedPolicies, HrrsTakesTrainingBeforeLogprobsBeforeRolloutsOfOtherJobs) {
  SimulatedDevice device(config("hrrs", 1000), 1);
  for (std::uint64_t n = 1; n <= 4; ++n) add(device, n, 40);
  device.add_op({1}, OpKind::kOptimStep, 0, 100);
  const OpId rollout = device.add_op({2}, OpKind::kGenerate, 0, 5);
  const OpId logprobs = device.add_op({3}, OpKind::kLogprobs, 0, 5);
  const OpId train = device.add_op({4}, OpKind::kOptimStep, 0, 5);
  ASSERT_TRUE(device.drain());
  EXPECT_EQ(device.started(), (std::vector<OpId>{{1}, train, logprobs, rollout}));
}

// Three tenants train without end; a fourth has one rollout. Each may be ahead of the rollout by
// its lag of 20 quanta.
TEST(RankedPolicies, ARolloutIsNotStarvedByOtherJobsTraining) {
  for (const char* policy : kRanked) {
    SimulatedDevice device(config(policy), 3);
    std::set<OpId> ops[3];
    for (std::uint64_t n = 1; n <= 4; ++n) add(device, n, 20);
    for (std::uint64_t n = 1; n <= 3; ++n)
      keep_busy(device, n, OpKind::kForwardBackward, 10, 2, ops[n - 1]);
    while (device.now().ns < 5000 * kMs) ASSERT_TRUE(device.advance());
    const OpId rollout = device.add_op({4}, OpKind::kGenerate, 0, 400);
    const TimePoint since = device.now();
    const auto waits = [&] {
      return device.scheduler().why(rollout).kind != WaitReason::Kind::kNone;
    };
    while (waits()) {
      ASSERT_TRUE(device.advance());
      ASSERT_LT((device.now() - since).ns, 10000 * kMs) << policy;
    }
  }
}

// The bound of every op's wait, over random tenants that always have work: all others' lags, their
// turns, and what was ahead in its own queue.
TEST(RankedPolicies, EveryOpStartsWithinABound) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    for (const char* policy : kRanked) {
      SimulatedDevice device(config(policy, 60), seed);
      std::vector<std::set<OpId>> ops(4);
      for (std::uint64_t n = 1; n <= 4; ++n) {
        add(device, n, 20 + device.random(20));
        const auto kind = static_cast<OpKind>(1 + device.random(4));
        keep_busy(device, n, kind, 1 + static_cast<std::int64_t>(device.random(50)), 2, ops[n - 1]);
      }
      std::map<OpId, TimePoint> since;
      while (device.now().ns < 8000 * kMs) {
        ASSERT_TRUE(device.advance());
        for (const OpId id : device.open_ops()) since.emplace(id, device.now());
        for (const OpId id : device.open_ops())
          ASSERT_LT((device.now() - since.at(id)).ns, 4000 * kMs)
              << policy << " seed " << seed << " op " << id.value;
      }
    }
  }
}

TEST(RankedPolicies, DeviceTimeFollowsTheShares) {
  for (const char* policy : kRanked) {
    SimulatedDevice device(config(policy), 1);
    std::set<OpId> ops[2];
    add(device, 1, 40, 100);
    add(device, 2, 40, 25);
    for (std::uint64_t n = 1; n <= 2; ++n)
      keep_busy(device, n, OpKind::kForwardBackward, 15, 2, ops[n - 1]);
    while (device.now().ns < 40000 * kMs) ASSERT_TRUE(device.advance());
    const auto share =
        100 * device.device_ns({1}) / (device.device_ns({1}) + device.device_ns({2}));
    EXPECT_NEAR(static_cast<double>(share), 80, 5) << policy;
  }
}

// ---- jobs: phases of training on the device, the rest of the iteration elsewhere ----

struct Job {
  std::int64_t op_ms = 0;
  int ops = 0;  // of a phase
  std::int64_t away_ms = 0;
  std::int64_t pause_ms = 1;  // between ops
  std::uint32_t bound = 0;
  std::uint32_t share = 100;
};

class Jobs {
 public:
  Jobs(std::string_view policy, std::uint64_t capacity, std::int64_t move_ms,
       const std::vector<Job>& jobs)
      : device_(config(policy, capacity), 5), jobs_(jobs), left_(jobs.size()), done_(jobs.size()) {
    device_.move_ms = move_ms;
    for (std::size_t n = 0; n < jobs.size(); ++n) {
      if (jobs[n].bound != 0) device_.send(TenantBound{{n + 1}, jobs[n].bound});
      add(device_, n + 1, 50, jobs[n].share);
      left_[n] = jobs[n].ops;
      submit(n);
    }
    device_.on_finish = [this](OpId id) { finished(owner_.at(id)); };
  }
  void run(std::int64_t ms) {
    while (device_.now().ns < ms * kMs) ASSERT_TRUE(device_.advance());
  }
  // Measured: iterations that it would have done alone over those that it did.
  [[nodiscard]] double slowdown(std::size_t n) const {
    const Job& job = jobs_[n];
    const auto alone =
        static_cast<double>(job.ops * job.op_ms + (job.ops - 1) * job.pause_ms + job.away_ms);
    return static_cast<double>(device_.now().ns) / static_cast<double>(kMs) / alone / done_[n];
  }
  [[nodiscard]] double mean_slowdown() const {
    double sum = 0;
    for (std::size_t n = 0; n < jobs_.size(); ++n) sum += slowdown(n);
    return sum / static_cast<double>(jobs_.size());
  }

 private:
  void submit(std::size_t n) {
    const bool last = left_[n] == 1;
    const OpKind kind = last ? OpKind::kOptimStep : OpKind::kForwardBackward;
    owner_[device_.add_op({n + 1}, kind, 0, jobs_[n].op_ms)] = n;
  }
  void finished(std::size_t n) {
    if (--left_[n] > 0) return device_.after(jobs_[n].pause_ms, [this, n] { submit(n); });
    done_[n] += 1;
    left_[n] = jobs_[n].ops;
    device_.after(jobs_[n].away_ms, [this, n] { submit(n); });
  }

  SimulatedDevice device_;
  std::vector<Job> jobs_;
  std::vector<int> left_;
  std::vector<double> done_;
  std::map<OpId, std::size_t> owner_;
};

struct Case {
  const char* name;
  std::uint64_t capacity;
  std::int64_t move_ms;
  std::vector<Job> jobs;
};

std::vector<Case> cases() {
  return {{"two alike, room for one", 50, 200, {{100, 40, 12000}, {100, 40, 12700}}},
          {"three alike, room for one",
           50,
           200,
           {{100, 40, 12000}, {100, 40, 12700}, {100, 40, 13100}}},
          {"two alike, room for both", 100, 200, {{100, 40, 9000}, {100, 40, 9700}}},
          {"short and long, room for one", 50, 200, {{100, 10, 3500}, {100, 150, 31000}}},
          {"short and long, room for both", 100, 200, {{100, 10, 3500}, {100, 150, 31000}}},
          {"five, crowded",
           100,
           200,
           {{100, 10, 5000}, {100, 20, 9000}, {100, 40, 15000}, {100, 60, 30000}, {50, 30, 7000}}}};
}

double mean_slowdown(const Case& what, std::string_view policy) {
  Jobs jobs(policy, what.capacity, what.move_ms, what.jobs);
  jobs.run(4000000);
  return jobs.mean_slowdown();
}

// The table in doc/scheduling.md. What is asserted is the order of the policies, not figures.
TEST(JobsTogether, LeastSlowdownIsTheLeast) {
  std::printf("%-32s %8s %12s %8s %15s\n", "mean slowdown", "fifo", "round-robin", "hrrs",
              "least-slowdown");
  for (const Case& what : cases()) {
    const double fifo = mean_slowdown(what, "fifo");
    const double robin = mean_slowdown(what, "round-robin");
    const double hrrs = mean_slowdown(what, "hrrs");
    const double least = mean_slowdown(what, "least-slowdown");
    std::printf("%-32s %8.3f %12.3f %8.3f %15.3f\n", what.name, fifo, robin, hrrs, least);
    EXPECT_LE(least, std::min({fifo, robin, hrrs}) * 1.02) << what.name;
  }
}

// A job that is busy for 45 percent of its time and accepts 1.3 has a share of 60 from the hook.
TEST(JobsTogether, ABoundIsKeptAtTheOthersExpense) {
  for (const char* policy : kRanked) {
    const auto slowdown = [&](std::uint32_t bound, std::uint32_t share) {
      Jobs jobs(
          policy, 200, 10,
          {{100, 20, 2400, 1, bound, share}, {100, 20, 2500, 1, 0, 20}, {100, 20, 2700, 1, 0, 20}});
      jobs.run(4000000);
      return jobs.slowdown(0);
    };
    const double free = slowdown(0, 20);
    const double bound = slowdown(1300, 60);
    EXPECT_LT(bound, free - 0.05) << policy;
    EXPECT_LT(bound, 1.35) << policy;
  }
}

}  // namespace
}  // namespace plexrl::core
