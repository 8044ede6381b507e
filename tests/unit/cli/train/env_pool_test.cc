// SPDX-License-Identifier: Apache-2.0
#include "cli/train/env_pool.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "unit/cli/train/env_script.h"

namespace plexrl::cli {
namespace {

using nlohmann::json;

constexpr Duration kLong{120 * kSecond.ns};
constexpr const char* kGood = "\nwhile next; do say '\"observation\":\"x\"'; done\n";

bool is_gone(long pid) { return ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH; }

class EnvPoolTest : public EnvScriptTest {
 protected:
  // A pool of one worker that does `hostile` after its greeting, once; its successor is good.
  std::string once(const std::string& hostile) const {
    return in_folder(worker_script("if mkdir used 2>/dev/null; then\n" + hostile + "\nfi" + kGood));
  }
  static Result<json> ask(EnvPool& pool) {
    return std::move(pool.exchange({{0, {{"op", "step"}}}}).front());
  }
};

TEST_F(EnvPoolTest, EachWorkerAnswersItsOwnRequest) {
  EnvPool pool(in_folder(worker_script("while next; do say \"\\\"got\\\":$line\"; done")), 3,
               kLong);
  ASSERT_TRUE(pool.check().ok()) << pool.check().to_string();
  const auto replies = pool.exchange({{2, {{"x", "two"}}}, {0, {{"x", "zero"}}}});
  ASSERT_EQ(replies.size(), 2U);
  ASSERT_TRUE(replies[0].has_value()) << replies[0].error().to_string();
  ASSERT_TRUE(replies[1].has_value()) << replies[1].error().to_string();
  EXPECT_EQ((*replies[0])["got"]["x"], "two");
  EXPECT_EQ((*replies[1])["got"]["x"], "zero");
  const std::string large(EnvWorker::kMaxLineBytes / 2, 'y');  // larger than a pipe, both ways
  const auto wide = pool.exchange({{1, {{"x", large}}}});
  ASSERT_TRUE(wide[0].has_value()) << wide[0].error().to_string();
  EXPECT_EQ((*wide[0])["got"]["x"], large);
}

TEST_F(EnvPoolTest, AHostileWorkerFailsItsRequestAndIsReplaced) {
  struct Case {
    const char* script;
    Code code;
    const char* text;
  };
  for (const Case& one : {
           Case{"next; echo garbage", Code::PROTOCOL, "'garbage', which is not a JSON object"},
           Case{"next; echo '[1]'", Code::PROTOCOL, "not a JSON object"},
           Case{"next; say '\"reward\":NaN'", Code::PROTOCOL, "not a JSON object"},
           Case{"next; printf '\\377\\n'", Code::PROTOCOL, "not a JSON object"},
           Case{"next; echo '{}'", Code::PROTOCOL, "answers request null"},
           Case{"next; head -c 1000000000 /dev/zero | tr '\\0' x", Code::TOO_LARGE, "1048576"},
           Case{"next; yes", Code::PROTOCOL, ""},
           Case{"next; echo boom >&2; exit 4", Code::IO, "exit status 4"},
           Case{"next; echo boom >&2; exit 4", Code::IO, "boom"},
           Case{"next; printf '{\"id\":%s,' $id; exit 1", Code::IO, "exit status 1"},
           Case{"next; kill -9 $$", Code::IO, "signal 9"},
           Case{"next; exec >&-; sleep 600", Code::IO, "closed its standard output"},
           Case{"next; printf '{\"id\":%s}\\n{\"id\":%s}\\n' $id $id", Code::PROTOCOL,
                "more than one line"},
           Case{"sleep 600 & exit 3", Code::IO, "exit status 3"},
       }) {
    std::filesystem::remove(path("used"));
    EnvPool pool(once(one.script), 1, kLong);
    const auto bad = ask(pool);
    ASSERT_FALSE(bad.has_value()) << one.script;
    EXPECT_EQ(bad.error().code(), one.code) << one.script << ": " << bad.error().to_string();
    EXPECT_NE(bad.error().text().find(one.text), std::string::npos) << bad.error().text();
    EXPECT_NE(bad.error().text().find("environment worker 0"), std::string::npos);
    const auto good = ask(pool);
    ASSERT_TRUE(good.has_value()) << one.script << ": " << good.error().to_string();
    EXPECT_EQ((*good)["observation"], "x");
  }
}

TEST_F(EnvPoolTest, AWorkerThatHangsIsLate) {
  EnvPool pool(once("next; sleep 600"), 1, Duration{200 * kMillisecond.ns});
  EXPECT_EQ(ask(pool).error().code(), Code::TIMEOUT);
}

TEST_F(EnvPoolTest, AnAnswerToAnEarlierRequestIsNotTakenForThisOne) {
  EnvPool pool(once("next; say '\"observation\":\"a\"'; next; id=$((id - 1)); say '\"b\":1'"), 1,
               kLong);
  EXPECT_TRUE(ask(pool).has_value());
  EXPECT_NE(ask(pool).error().text().find("answers request 2, asked was 3"), std::string::npos);
  EXPECT_TRUE(ask(pool).has_value());
}

TEST_F(EnvPoolTest, AnotherVersionIsUnsupported) {
  EnvPool pool("read -r line; echo '{\"id\":1,\"protocol\":2}'; cat", 1, kLong);
  const Status status = pool.check();
  EXPECT_EQ(status.code(), Code::UNSUPPORTED);
  EXPECT_NE(status.text().find("version 2 of the protocol, needed is 1"), std::string::npos);
}

TEST_F(EnvPoolTest, ACommandThatIsNotThereIsTold) {
  EnvPool pool("no-such-command-at-all", 1, kLong);
  const Status status = pool.check();
  EXPECT_NE(status.text().find("exit status 127"), std::string::npos) << status.text();
  EXPECT_NE(status.text().find("not found"), std::string::npos) << status.text();
}

TEST_F(EnvPoolTest, AFloodOnStandardErrorIsKeptShort) {
  EnvPool pool(once("next; head -c 20000000 /dev/zero | tr '\\0' e >&2; say '\"observation\":\"x\"'"
                    "; next; exit 1"),
               1, kLong);
  EXPECT_TRUE(ask(pool).has_value());
  const auto bad = ask(pool);
  ASSERT_FALSE(bad.has_value());
  EXPECT_LT(bad.error().text().size(), EnvWorker::kKeptStderrBytes + 200);
  EXPECT_NE(bad.error().text().find("eeee"), std::string::npos);
}

// In its group, and one that left it.
TEST_F(EnvPoolTest, DescendantsDieWithTheirWorker) {
  EnvPool pool(once("sleep 600 & echo $! >inside\nsetsid sleep 600 & echo $! >outside\n"
                    "next; exit 1"),
               1, kLong);
  EXPECT_FALSE(ask(pool).has_value());
  ASSERT_GT(number_in("inside"), 1);
  ASSERT_GT(number_in("outside"), 1);
  EXPECT_TRUE(is_gone(number_in("inside")));
  EXPECT_TRUE(is_gone(number_in("outside")));
}

TEST_F(EnvPoolTest, TheEndClosesAndThenKills) {
  {
    EnvPool pool(
        in_folder(worker_script("next\ncase $line in *stay*) echo $$ >stays; say '\"a\":1'\n"
                                "exec sleep 600;; esac\nsay '\"a\":1'\n"
                                "next; echo \"$line\" >asked; next")),
        2, kLong);
    const auto replies = pool.exchange({{0, {{"op", "stay"}}}, {1, {{"op", "go"}}}});
    ASSERT_TRUE(replies[0].has_value() && replies[1].has_value());
  }
  ASSERT_GT(number_in("stays"), 1);
  EXPECT_TRUE(is_gone(number_in("stays")));
  std::ifstream file(path("asked"));
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line, R"({"op":"close"})");
}

// plexrl killed by SIGKILL closes nothing.
TEST_F(EnvPoolTest, AWorkerDiesWithThePlexrlThatStartedIt) {
  const pid_t owner = ::fork();
  ASSERT_GE(owner, 0);
  if (owner == 0) {
    auto* const pool =
        new EnvPool(in_folder(worker_script("echo $$ >worker; exec sleep 600")), 1, kLong);
    ::_exit(pool->check().ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(owner, &status, 0), owner);
  ASSERT_EQ(status, 0);
  long worker = 0;
  for (int i = 0; i < 1000 && (worker = number_in("worker")) == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  // Killed before it wrote its number is as good.
  if (worker == 0) return;
  const auto zombie = [&] {
    std::ifstream file("/proc/" + std::to_string(worker) + "/stat");
    std::string text;
    std::getline(file, text);
    return text.find(") Z ") != std::string::npos;
  };
  for (int i = 0; i < 1000 && !is_gone(worker) && !zombie(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(is_gone(worker) || zombie());
}

}  // namespace
}  // namespace plexrl::cli
