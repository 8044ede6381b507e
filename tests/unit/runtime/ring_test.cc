// SPDX-License-Identifier: Apache-2.0
// The daemon's runtime under virtual time: random jobs, a script of faults, and invariants after
// every event. doc/testing.md has the list. PLEXRL_SEED runs one seed with its log, PLEXRL_SOAK
// that many times kSoakSeeds, others each time, PLEXRL_RING_SEEDS so many from 1 on.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "base/log.h"
#include "ring_checks.h"
#include "ring_client.h"

namespace plexrl::runtime {
namespace {

constexpr std::uint64_t kSeeds = 100;
constexpr std::uint64_t kSoakSeeds = 20;  // 1,000 in `make soak`
// Faults have stopped: every op that waits ends within this. The longest that may come together: an
// engine that hangs as plexrld connects (120 s, then it is started again), its recovery, and
// another engine's pings (20 s).
constexpr Duration kSettle{240 * kSecond.ns};
// Of a run with faults; what the clients have not asked by then, they do not ask.
constexpr Duration kFaultTime{400 * kSecond.ns};

struct Totals {
  std::uint64_t answers = 0;
  std::uint64_t losses = 0;
  std::uint64_t restarts = 0;
  std::uint64_t turns = 0;
};

class Ring {
 public:
  Ring(std::uint64_t seed, bool faults, const std::string& folder)
      : world_(seed), script_(world_), node_(world_, script_, broken_, folder) {
    if (!faults) script_.quiet();
    const std::uint64_t jobs = world_.random.between(2, script_.with_disk ? 4 : 5);
    for (std::uint32_t job = 1; job <= jobs; ++job)
      clients_.push_back(std::make_unique<RingClient>(
          RingClient::Parts{world_, script_, broken_, node_, sessions_}, job,
          world_.random.between(10, 60)));
    node_.on_down = [this] { went_down(); };
    node_.on_closed = [this](TenantId tenant) {
      for (const auto& client : clients_)
        if (client->tenant() == tenant && !client->closed()) client->vanish();
    };
  }

  void run() {
    node_.start();
    for (const auto& client : clients_) client->begin();
    const TimePoint end = world_.now() + kFaultTime;
    turn_until([&] { return all(&RingClient::used_up) || world_.now() > end; });
    script_.quiet();
    node_.store_full(false);
    node_.store_refuses(0);
    for (const auto& client : clients_) client->finish();
    settle("ops wait", [this] { return node_.ready() && all(&RingClient::idle); });
    probe();
    if (broken_.texts.empty()) node_.stop();
    settle("plexrld does not stop", [this] { return node_.down(); });
    settle("plexrld does not start", [this] { return node_.ready(); });
    probe();
    close_all();
  }

  [[nodiscard]] const std::vector<std::string>& broken() const { return broken_.texts; }
  [[nodiscard]] std::uint64_t trace() const { return world_.trace(); }
  void add_to(Totals& totals) const {
    for (const auto& client : clients_) {
      totals.answers += client->answered_well();
      totals.losses += client->losses();
    }
    totals.restarts += restarts_;
    totals.turns += world_.turns();
  }

 private:
  [[nodiscard]] bool all(bool (RingClient::*is)() const) const {
    return std::all_of(clients_.begin(), clients_.end(),
                       [is](const auto& client) { return ((*client).*is)(); });
  }
  void turn_until(const std::function<bool()>& done) {
    while (broken_.texts.empty() && !done()) {
      if (!world_.turn()) return broken_.add("nothing happens any more");
      checks_.after_event();
      disturb();
    }
  }
  void settle(const char* what, const std::function<bool()>& done,
              const std::function<std::string()>& left = {}) {
    const TimePoint end = world_.now() + kSettle;
    turn_until([&] { return done() || world_.now() > end; });
    if (!broken_.texts.empty() || done()) return;
    if (left) return broken_.add("%s: %s", what, left().c_str());
    for (const auto& client : clients_)
      broken_.add("%s for more than %d s: %s", what, static_cast<int>(kSettle.ns / kSecond.ns),
                  client->waits_for().c_str());
  }
  void probe() {
    for (const auto& client : clients_) client->probe();
    settle("probes wait", [this] { return node_.ready() && all(&RingClient::idle); });
  }
  void disturb() {
    if (script_.happens(&Faults::store_full)) {
      node_.store_full(true);
      world_.after(world_.random.up_to(kSecond * 5), [this] { node_.store_full(false); });
    }
    if (script_.happens(&Faults::store_picky)) {
      node_.store_refuses(world_.random.between(1, 10));
      world_.after(world_.random.up_to(kSecond * 5), [this] { node_.store_refuses(0); });
    }
    if (node_.down()) return;
    if (script_.happens(&Faults::kill)) return node_.kill();
    if (script_.happens(&Faults::stop)) node_.stop();
  }
  void went_down() {
    for (const auto& client : clients_) client->disconnected();
    if (script_.happens(&Faults::lose_engines)) node_.lose_engines();
    ++restarts_;
    world_.after(world_.random.up_to(kSecond * 3), [this] { node_.start(); });
  }
  void close_all() {
    if (!broken_.texts.empty()) return;
    for (const auto& client : clients_) {
      client->close();
      if (const Status status = node_.runtime().tenant_service().evict(client->job()); !status.ok())
        broken_.add("evict job %u: %s", client->job(), status.to_string().c_str());
    }
    settle(
        "jobs that end are still there", [this] { return checks_.quiet(); },
        [this] { return checks_.left(); });
    // What was given back last is free a moment later.
    const TimePoint end = world_.now() + kSecond;
    turn_until([&] { return world_.now() > end; });
    if (broken_.texts.empty()) checks_.nothing_left();
  }

  Broken broken_;
  VirtualWorld world_;
  RingScript script_;
  RingNode node_;
  RingChecks checks_{node_, broken_};
  std::uint64_t sessions_ = 0;
  std::vector<std::unique_ptr<RingClient>> clients_;
  std::uint64_t restarts_ = 0;
};

class RingTest : public ::testing::Test {
 protected:
  RingTest() {
    // In memory where that is possible: the files of a run are synced.
    std::string path =
        (std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : ::testing::TempDir()) +
        std::string("/plexrl-ring-XXXXXX");
    folder_ = ::mkdtemp(path.data());
  }
  ~RingTest() override {
    std::filesystem::remove_all(folder_);
    set_log_level(LogLevel::kInfo);
  }
  static std::optional<std::uint64_t> number(const char* name) {
    const char* const text = std::getenv(name);
    if (text == nullptr) return std::nullopt;
    return std::strtoull(text, nullptr, 10);
  }
  // The trace of the run.
  std::uint64_t run(std::uint64_t seed, bool faults) {
    const std::string folder = folder_ + "/run";
    std::filesystem::create_directories(folder);
    std::uint64_t trace = 0;
    {
      Ring ring(seed, faults, folder);
      ring.run();
      for (const std::string& text : ring.broken())
        ADD_FAILURE() << "PLEXRL_SEED=" << seed << ": " << text;
      ring.add_to(totals_);
      trace = ring.trace();
    }
    std::filesystem::remove_all(folder);
    return trace;
  }

  void many(bool faults) {
    const auto soak = number("PLEXRL_SOAK");
    const std::uint64_t first = soak ? std::random_device()() : 1;
    const std::uint64_t fixed = number("PLEXRL_RING_SEEDS").value_or(kSeeds);
    const std::uint64_t count = soak ? kSoakSeeds * *soak : fixed;
    for (std::uint64_t seed = first; seed < first + count && !HasFailure(); ++seed)
      run(seed, faults);
    std::printf(
        "%llu seeds from %llu: %llu events, %llu good answers, %llu restarts, %llu losses\n",
        static_cast<unsigned long long>(count), static_cast<unsigned long long>(first),
        static_cast<unsigned long long>(totals_.turns),
        static_cast<unsigned long long>(totals_.answers),
        static_cast<unsigned long long>(totals_.restarts),
        static_cast<unsigned long long>(totals_.losses));
    EXPECT_GT(totals_.answers, count * 20) << "the jobs must have done something";
  }

  std::string folder_;
  Totals totals_;
};

// Faults are the point of these runs: nobody wants to read the warnings of all of them.
constexpr auto kSilent = static_cast<LogLevel>(-1);

TEST_F(RingTest, WithoutFaultsEverythingIsAsAlone) {
  if (const auto seed = number("PLEXRL_SEED")) {
    set_log_level(LogLevel::kDebug);
    run(*seed, false);
    return;
  }
  set_log_level(kSilent);
  many(false);
}

TEST_F(RingTest, NoFaultScheduleBreaksAnInvariant) {
  if (const auto seed = number("PLEXRL_SEED")) {
    set_log_level(LogLevel::kDebug);
    run(*seed, true);
    return;
  }
  set_log_level(kSilent);
  many(true);
}

TEST_F(RingTest, ASeedRepeatsARunToTheLastBit) {
  set_log_level(kSilent);
  for (const std::uint64_t seed : {7, 11}) EXPECT_EQ(run(seed, false), run(seed, false)) << seed;
  EXPECT_NE(run(7, false), run(11, false));
}

}  // namespace
}  // namespace plexrl::runtime
