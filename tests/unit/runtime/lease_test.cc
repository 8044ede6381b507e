// SPDX-License-Identifier: Apache-2.0
// Leases in the whole runtime: real processes hold them, a fake stands for plexrl-reap.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/explain.h"
#include "node_fixture.h"

namespace plexrl::runtime {
namespace {

// A process that sleeps; ended and waited for at the latest by the destructor.
class Child {
 public:
  Child() : pid_(::fork()) {
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) ::pause();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { end(); }
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    (void)::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  [[nodiscard]] pid_t pid() const { return pid_; }
  // Ended by somebody else, and reaped here.
  [[nodiscard]] bool ended() {
    if (pid_ > 0 && ::waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = 0;
    return pid_ == 0;
  }

 private:
  pid_t pid_;
};

class FakeReaper final : public Reaper {
 public:
  Status stop(const ReapRequest& request) override {
    requests.push_back(request);
    if (broken) return error(Code::UNAVAILABLE, "no reaper");
    if (!answer.ok()) return {};
    for (const pid_t pid : request.pids) ::kill(pid, SIGKILL);
    return {};
  }
  Status last() override { return answer; }
  std::vector<ReapRequest> requests;
  bool broken = false;
  Status answer;  // nothing is stopped unless it is OK
};

class LeaseServiceTest : public NodeFixture {
 protected:
  LeaseServiceTest() {
    config_.pools.front().lease_slice_s = 1;
    config_.daemon.yield_timeout_ms = 200;
    reaper_seam_ = &reaper_;
  }

  struct Ask {
    std::optional<Result<wire::LeaseGrantT>> grant;
    [[nodiscard]] bool granted() const { return grant.has_value() && grant->has_value(); }
    [[nodiscard]] Code code() const { return grant && !*grant ? grant->error().code() : Code::OK; }
  };
  std::shared_ptr<Ask> acquire(TenantId tenant, SessionId session, pid_t pid,
                               wire::LeaseAcquireT acquire = {}) {
    auto ask = std::make_shared<Ask>();
    node_->lease_service().acquire(
        {tenant, session, ++requests_, pid, "test", std::move(acquire),
         [ask](Result<wire::LeaseGrantT> grant) { ask->grant.emplace(std::move(grant)); }});
    return ask;
  }
  std::shared_ptr<Ask> yield(SessionId session, std::uint64_t lease) {
    auto ask = std::make_shared<Ask>();
    node_->lease_service().yield(
        session, ++requests_, OpId{lease},
        [ask](Result<wire::LeaseGrantT> grant) { ask->grant.emplace(std::move(grant)); });
    return ask;
  }
  static wire::LeaseAcquireT cooperative() {
    wire::LeaseAcquireT acquire;
    acquire.yields = true;
    return acquire;
  }
  static wire::LeaseAcquireT limited(std::uint64_t ms) {
    wire::LeaseAcquireT acquire;
    acquire.limit_ms = ms;
    return acquire;
  }
  bool granted(const std::shared_ptr<Ask>& ask) {
    return turn_until([&] { return ask->grant.has_value(); }) && ask->granted();
  }

  std::uint32_t uid_ = ::getuid();
  FakeReaper reaper_;
};

TEST_F(LeaseServiceTest, IsGrantedAndReleased) {
  start();
  const TenantId tenant = open_job(1, uid_);
  const auto ask = acquire(tenant, SessionId{5}, ::getpid());
  ASSERT_TRUE(granted(ask));
  EXPECT_EQ(ask->grant->value().device_bytes, 1U << 20) << "the whole device";
  const auto holder = node_->lease_service().holder();
  ASSERT_TRUE(holder.has_value());
  EXPECT_EQ(holder->tenant, tenant);
  const OpId lease{ask->grant->value().lease};
  EXPECT_EQ(node_->lease_service().release(SessionId{6}, lease).code(), Code::NOT_FOUND);
  EXPECT_TRUE(node_->lease_service().release(SessionId{5}, lease).ok());
  EXPECT_FALSE(node_->lease_service().holder().has_value());
  EXPECT_TRUE(node_->ops().all().empty());
  EXPECT_EQ(node_->accounting().find(tenant)->kinds[7].count, 1U);
}

TEST_F(LeaseServiceTest, RefusesWhatCannotBe) {
  start();
  const TenantId tenant = open_job(1, uid_);
  wire::LeaseAcquireT large;
  large.device_bytes = (1U << 20) + 1;
  EXPECT_EQ(acquire(tenant, SessionId{5}, ::getpid(), large)->code(), Code::NO_CAPACITY);
  wire::LeaseAcquireT init;
  init.pids = {1};
  EXPECT_EQ(acquire(tenant, SessionId{5}, ::getpid(), init)->code(), Code::INVALID_ARGUMENT);
  wire::LeaseAcquireT gone;
  gone.pids = {0x3fffffff};
  EXPECT_EQ(acquire(tenant, SessionId{5}, ::getpid(), gone)->code(), Code::NOT_FOUND);
  wire::LeaseAcquireT many;
  for (std::int32_t pid = 2; pid < 5000; ++pid) many.pids.push_back(::getppid());
  many.pids.push_back(-7);
  EXPECT_EQ(acquire(tenant, SessionId{5}, ::getpid(), many)->code(), Code::INVALID_ARGUMENT);
  const TenantId other = open_job(2, uid_ + 1);
  EXPECT_EQ(acquire(other, SessionId{6}, ::getpid())->code(), Code::PERMISSION)
      << "a process of another user";
  EXPECT_TRUE(node_->ops().all().empty());
}

// A lease beside ordinary tenants: their model leaves the device, comes back, and has every bit.
TEST_F(LeaseServiceTest, ModelsAreParkedForItAndComeBackBitExact) {
  start();
  const TenantId trainer = open_job(1, uid_);
  const std::uint64_t id = model(trainer);
  ASSERT_TRUE(run(trainer, id, 1, train(3)).status.ok());
  ASSERT_TRUE(run(trainer, id, 2, optim()).status.ok());
  const auto before = weights_of(trainer, id, 3);
  ASSERT_TRUE(node_->models().find(ModelId{id})->resident);
  const TenantId holder = open_job(2, uid_);
  const auto ask = acquire(holder, SessionId{5}, ::getpid(), cooperative());
  ASSERT_TRUE(granted(ask));
  EXPECT_FALSE(node_->models().find(ModelId{id})->resident) << "it does not fit beside the lease";
  auto waits = submit(trainer, id, 4, train(9, true));
  settle();
  EXPECT_FALSE(waits->outcome.has_value()) << "the device group is the holder's";
  ASSERT_TRUE(node_->lease_service().release(SessionId{5}, OpId{ask->grant->value().lease}).ok());
  const OpOutcome outcome = wait(waits);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.to_string();
  EXPECT_EQ(outcome.reply.value.AsForwardBackwardResult()->logprobs.front()->values, before);
}

TEST_F(LeaseServiceTest, ASmallOneLeavesModelsWhereTheyAre) {
  start();
  const TenantId trainer = open_job(1, uid_);
  const std::uint64_t id = model(trainer);
  ASSERT_TRUE(run(trainer, id, 1, train(3)).status.ok());
  wire::LeaseAcquireT small;
  small.device_bytes = 4096;
  ASSERT_TRUE(granted(acquire(open_job(2, uid_), SessionId{5}, ::getpid(), small)));
  EXPECT_TRUE(node_->models().find(ModelId{id})->resident);
}

TEST_F(LeaseServiceTest, AskedWhenAnotherWaitsAndQueuedAgainAfterTheYield) {
  start();
  const TenantId one = open_job(1, uid_);
  const TenantId two = open_job(2, uid_);
  const auto first = acquire(one, SessionId{5}, ::getpid(), cooperative());
  ASSERT_TRUE(granted(first));
  std::optional<Result<wire::LeaseAskedT>> asked;
  node_->lease_service().watch(SessionId{5}, OpId{first->grant->value().lease},
                               [&](Result<wire::LeaseAskedT> a) { asked.emplace(std::move(a)); });
  settle();
  EXPECT_FALSE(asked.has_value()) << "nobody waits";
  const auto second = acquire(two, SessionId{6}, ::getpid(), cooperative());
  EXPECT_FALSE(second->grant.has_value());
  ASSERT_TRUE(turn_until([&] { return asked.has_value(); }));
  ASSERT_TRUE(asked->has_value());
  EXPECT_LE(asked->value().yield_in_ms, 200U);
  const auto again = yield(SessionId{5}, first->grant->value().lease);
  EXPECT_FALSE(again->grant.has_value());
  EXPECT_TRUE(granted(second)) << "as soon as the first has yielded";
  ASSERT_TRUE(
      node_->lease_service().release(SessionId{6}, OpId{second->grant->value().lease}).ok());
  EXPECT_TRUE(granted(again));
  EXPECT_EQ(again->grant->value().lease, first->grant->value().lease);
  EXPECT_TRUE(reaper_.requests.empty());
}

TEST_F(LeaseServiceTest, OneThatDoesNotYieldIsStopped) {
  start();
  Child child;
  const auto first = acquire(open_job(1, uid_), SessionId{5}, child.pid(), limited(100));
  ASSERT_TRUE(granted(first));
  const auto second = acquire(open_job(2, uid_), SessionId{6}, ::getpid());
  ASSERT_TRUE(turn_until([&] { return child.ended(); }));
  EXPECT_TRUE(granted(second));
  ASSERT_FALSE(reaper_.requests.empty());
  EXPECT_EQ(reaper_.requests.front().job_id, 1U);
  EXPECT_EQ(reaper_.requests.front().uid, uid_);
  EXPECT_EQ(reaper_.requests.front().pids.size(), 1U);
  EXPECT_EQ(node_->lease_service().stops(), 1U);
}

TEST_F(LeaseServiceTest, OneThatIsStoppedByASignalCountsAsNotYielding) {
  start();
  Child child;
  ASSERT_EQ(::kill(child.pid(), SIGSTOP), 0);
  const auto first = acquire(open_job(1, uid_), SessionId{5}, child.pid(), cooperative());
  ASSERT_TRUE(granted(first));
  const auto second = acquire(open_job(2, uid_), SessionId{6}, ::getpid());
  ASSERT_TRUE(turn_until([&] { return child.ended(); }));
  EXPECT_TRUE(granted(second));
}

// Nobody gets the device before the processes are gone, however long that takes.
TEST_F(LeaseServiceTest, TheNextWaitsForProof) {
  start();
  reaper_.broken = true;
  Child child;
  ASSERT_TRUE(granted(acquire(open_job(1, uid_), SessionId{5}, child.pid(), limited(50))));
  const auto second = acquire(open_job(2, uid_), SessionId{6}, ::getpid());
  ASSERT_TRUE(turn_until([&] { return reaper_.requests.size() >= 2; }));
  EXPECT_FALSE(second->grant.has_value());
  EXPECT_STREQ(node_->lease_service().holder()->state, "stopping");
  EXPECT_EQ(node_->lease_service().holder()->trouble, "no reaper");
  reaper_.broken = false;
  ASSERT_TRUE(turn_until([&] { return child.ended(); }));
  EXPECT_TRUE(granted(second));
}

TEST_F(LeaseServiceTest, WhyItIsNotStoppedIsSaid) {
  start();
  reaper_.answer = error(Code::PERMISSION, "refused");
  Child child;
  const auto first = acquire(open_job(1, uid_), SessionId{5}, child.pid(), limited(50));
  ASSERT_TRUE(granted(first));
  const auto second = acquire(open_job(2, uid_), SessionId{6}, ::getpid());
  ASSERT_TRUE(turn_until([&] { return reaper_.requests.size() >= 2; }));
  const auto holder = node_->lease_service().holder();
  EXPECT_EQ(holder->trouble, "refused");
  EXPECT_EQ(holder->pids, std::vector<pid_t>{child.pid()});
  EXPECT_GT(holder->stopping_ns, 0);
  const Op& op = *node_->ops().find(OpId{first->grant->value().lease});
  const std::string why = api::explain(*node_, op);
  EXPECT_NE(why.find("1 processes left: refused"), std::string::npos) << why;
  reaper_.answer = {};
  ASSERT_TRUE(turn_until([&] { return child.ended(); }));
  EXPECT_TRUE(granted(second));
}

// One that is slow is not asked over and over, one that never answers is.
TEST_F(LeaseServiceTest, ARequestWithoutAnAnswerIsSentAgain) {
  start();
  reaper_.answer = error(Code::BUSY, "no answer");
  Child child;
  ASSERT_TRUE(granted(acquire(open_job(1, uid_), SessionId{5}, child.pid(), limited(50))));
  const auto second = acquire(open_job(2, uid_), SessionId{6}, ::getpid());
  const auto trouble = [&] { return node_->lease_service().holder()->trouble; };
  ASSERT_TRUE(turn_until([&] { return trouble() == "no answer"; }));
  EXPECT_EQ(reaper_.requests.size(), 1U);
  ASSERT_TRUE(turn_until([&] { return reaper_.requests.size() == 2; }));
  reaper_.answer = {};
  EXPECT_TRUE(granted(second));
  EXPECT_TRUE(turn_until([&] { return child.ended(); }));
}

TEST_F(LeaseServiceTest, ADeadHolderFreesItAtOnce) {
  start();
  Child child;
  ASSERT_TRUE(granted(acquire(open_job(1, uid_), SessionId{5}, child.pid())));
  const auto second = acquire(open_job(2, uid_), SessionId{6}, ::getpid());
  child.end();
  node_->lease_service().session_closed(SessionId{5});
  EXPECT_TRUE(granted(second));
  EXPECT_TRUE(reaper_.requests.empty());
}

TEST_F(LeaseServiceTest, AClosedConnectionOfALivingProcessIsAskedThenStopped) {
  start();
  Child child;
  ASSERT_TRUE(granted(acquire(open_job(1, uid_), SessionId{5}, child.pid())));
  const auto second = acquire(open_job(2, uid_), SessionId{6}, ::getpid());
  node_->lease_service().session_closed(SessionId{5});
  settle();
  EXPECT_FALSE(second->grant.has_value()) << "its process may still use the device";
  EXPECT_TRUE(turn_until([&] { return child.ended(); }));
  EXPECT_TRUE(granted(second));
}

// The client dies; what it has started goes on using the device.
TEST_F(LeaseServiceTest, DescendantsHoldItToo) {
  start();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    ::setpgid(0, 0);
    const pid_t grandchild = ::fork();
    if (grandchild != 0) (void)!::write(ends[1], &grandchild, sizeof grandchild);
    for (;;) ::pause();
  }
  pid_t grandchild = 0;
  ASSERT_EQ(::read(ends[0], &grandchild, sizeof grandchild),
            static_cast<ssize_t>(sizeof grandchild));
  ASSERT_TRUE(granted(acquire(open_job(1, uid_), SessionId{5}, parent)));
  const auto second = acquire(open_job(2, uid_), SessionId{6}, ::getpid());
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  node_->lease_service().session_closed(SessionId{5});
  settle();
  EXPECT_FALSE(second->grant.has_value()) << "the grandchild lives";
  EXPECT_TRUE(granted(second)) << "it was stopped";
  ASSERT_FALSE(reaper_.requests.empty());
  EXPECT_EQ(reaper_.requests.front().pids, std::vector<pid_t>{grandchild});
  for (const int fd : ends) ::close(fd);
}

TEST_F(LeaseServiceTest, OneThatWaitsIsCancelledWithItsConnection) {
  start();
  ASSERT_TRUE(granted(acquire(open_job(1, uid_), SessionId{5}, ::getpid())));
  const auto second = acquire(open_job(2, uid_), SessionId{6}, ::getpid());
  EXPECT_EQ(node_->ops().all().size(), 2U);
  node_->lease_service().session_closed(SessionId{6});
  EXPECT_EQ(node_->ops().all().size(), 1U);
  EXPECT_FALSE(second->grant.has_value());
}

TEST_F(LeaseServiceTest, AnotherConnectionCannotTouchIt) {
  start();
  const auto ask = acquire(open_job(1, uid_), SessionId{5}, ::getpid());
  ASSERT_TRUE(granted(ask));
  const std::uint64_t lease = ask->grant->value().lease;
  EXPECT_EQ(yield(SessionId{6}, lease)->code(), Code::NOT_FOUND);
  std::optional<Result<wire::LeaseAskedT>> asked;
  node_->lease_service().watch(SessionId{6}, OpId{lease},
                               [&](Result<wire::LeaseAskedT> a) { asked.emplace(std::move(a)); });
  ASSERT_TRUE(asked.has_value());
  EXPECT_EQ(asked->error().code(), Code::NOT_FOUND);
}

TEST_F(LeaseServiceTest, HeldOverARestartOfTheDaemon) {
  start();
  const TenantId tenant = open_job(1, uid_);
  const auto ask = acquire(tenant, SessionId{5}, ::getpid(), cooperative());
  ASSERT_TRUE(granted(ask));
  restart();
  ASSERT_TRUE(node_->lease_service().holder().has_value());
  const auto second = acquire(open_job(2, uid_), SessionId{6}, ::getpid());
  settle();
  EXPECT_FALSE(second->grant.has_value());
  wire::LeaseAcquireT back;
  back.resume = ask->grant->value().lease;
  EXPECT_EQ(acquire(open_job(2, uid_), SessionId{7}, ::getpid(), back)->code(), Code::LOST)
      << "of another job";
  EXPECT_TRUE(granted(acquire(tenant, SessionId{8}, ::getpid(), back)));
  EXPECT_TRUE(node_->lease_service().release(SessionId{8}, OpId{back.resume}).ok());
  EXPECT_TRUE(granted(second));
}

TEST_F(LeaseServiceTest, AHolderThatDiedWhileTheDaemonWasAwayHoldsNothing) {
  start();
  Child child;
  ASSERT_TRUE(granted(acquire(open_job(1, uid_), SessionId{5}, child.pid())));
  node_->detach();
  node_.reset();
  child.end();
  start();
  EXPECT_FALSE(node_->lease_service().holder().has_value());
  EXPECT_TRUE(granted(acquire(open_job(2, uid_), SessionId{6}, ::getpid())));
}

// Its client cannot come back; without that it would hold the device until its limit.
TEST_F(LeaseServiceTest, OneOfAnEndedJobIsStoppedAfterARestart) {
  start();
  reaper_.broken = true;
  Child child;
  ASSERT_TRUE(granted(acquire(open_job(1, uid_), SessionId{5}, child.pid())));
  ASSERT_TRUE(node_->tenant_service().close(1).ok());
  ASSERT_TRUE(turn_until([&] { return !reaper_.requests.empty(); }));
  restart();
  reaper_.broken = false;
  const auto second = acquire(open_job(2, uid_), SessionId{6}, ::getpid());
  EXPECT_TRUE(granted(second));
  EXPECT_TRUE(turn_until([&] { return child.ended(); }));
}

TEST_F(LeaseServiceTest, TheEndOfItsJobEndsIt) {
  start();
  Child child;
  ASSERT_TRUE(granted(acquire(open_job(1, uid_), SessionId{5}, child.pid())));
  ASSERT_TRUE(node_->tenant_service().close(1).ok());
  ASSERT_TRUE(node_->tenant_service().evict(1).ok());
  settle();
  EXPECT_TRUE(node_->lease_service().holder().has_value()) << "its process lives";
  EXPECT_TRUE(turn_until([&] { return child.ended(); }));
  EXPECT_TRUE(turn_until([&] { return node_->tenants().find_job(1) == nullptr; }));
  EXPECT_FALSE(node_->lease_service().holder().has_value());
}

}  // namespace
}  // namespace plexrl::runtime
