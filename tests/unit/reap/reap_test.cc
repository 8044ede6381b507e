// SPDX-License-Identifier: Apache-2.0
// plexrl-reap against what must not get past it. Real processes; most need root, to run as other
// users.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "reap/job_process.h"
#include "reap/reap_server.h"
#include "wire/reap_message.h"

namespace plexrl::reap {
namespace {

constexpr uid_t kUser = 65534;
constexpr uid_t kOther = 65533;

// A step of a job without control groups: a slurmstepd of root and a task of a user below it.
class Step {
 public:
  Step(std::uint32_t job, uid_t uid) {
    char folder[] = "/tmp/plexrl-reap-XXXXXX";
    folder_ = ::mkdtemp(folder);
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const std::string title = "slurmstepd: [" + std::to_string(job) + ".0]";
    // The shell is the stepd; it starts the task as the user and waits for it.
    const std::string script = "exec 3>&-; setpriv --reuid " + std::to_string(uid) +
                               " --clear-groups sleep 100 & echo $! >&4; wait";
    stepd_ = ::fork();
    if (stepd_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::dup2(ends[1], 4);
      ::execl("/bin/bash", title.c_str(), "-c", script.c_str(), nullptr);
      ::_exit(1);
    }
    ::close(ends[1]);
    char text[32] = {};
    EXPECT_GT(::read(ends[0], text, sizeof text - 1), 0);
    ::close(ends[0]);
    task_ = static_cast<pid_t>(std::atoi(text));
    // Until setpriv has changed the user and become the sleep.
    for (int i = 0; i < 500 && !is_sleep(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  ~Step() {
    if (task_ > 1) ::kill(task_, SIGKILL);
    ::kill(stepd_, SIGKILL);
    (void)::waitpid(stepd_, nullptr, 0);
    std::filesystem::remove_all(folder_);
  }
  [[nodiscard]] pid_t task() const { return task_; }
  [[nodiscard]] pid_t stepd() const { return stepd_; }
  [[nodiscard]] bool task_lives() const {
    return std::filesystem::exists("/proc/" + std::to_string(task_) + "/exe");
  }
  bool task_ends() const {
    for (int i = 0; i < 500 && task_lives(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return !task_lives();
  }

 private:
  [[nodiscard]] bool is_sleep() const {
    std::error_code failed;
    const auto exe =
        std::filesystem::read_symlink("/proc/" + std::to_string(task_) + "/exe", failed);
    return exe.filename().string().find("sleep") != std::string::npos ||
           exe.filename().string().find("coreutils") != std::string::npos;
  }
  std::string folder_;
  pid_t stepd_ = 0;
  pid_t task_ = 0;
};

// A step whose task has started another process, with `words` before its command: variables of its
// environment, or "env -i".
class Family {
 public:
  Family(std::uint32_t job, uid_t uid, const std::string& words) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const std::string title = "slurmstepd: [" + std::to_string(job) + ".0]";
    const std::string script = "setpriv --reuid " + std::to_string(uid) +
                               " --clear-groups bash -c '" + words +
                               " sleep 100 & echo $$ $! >&4; wait' & wait";
    stepd_ = ::fork();
    if (stepd_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::dup2(ends[1], 4);
      ::execl("/bin/bash", title.c_str(), "-c", script.c_str(), nullptr);
      ::_exit(1);
    }
    ::close(ends[1]);
    char text[32] = {};
    EXPECT_GT(::read(ends[0], text, sizeof text - 1), 0);
    ::close(ends[0]);
    EXPECT_EQ(std::sscanf(text, "%d %d", &parent_, &child_), 2);
    EXPECT_TRUE(comes_true([this] { return line_of(child_, "comm") == "sleep"; }));
  }
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;
  ~Family() {
    for (const pid_t pid : {parent_, child_, stepd_})
      if (pid > 1) ::kill(pid, SIGKILL);
    (void)::waitpid(stepd_, nullptr, 0);
  }
  [[nodiscard]] pid_t parent() const { return parent_; }
  [[nodiscard]] pid_t child() const { return child_; }
  // The parent ends, and with it all that leads from the child to a slurmstepd.
  void orphan() const {
    const std::string link = " " + std::to_string(parent_) + " ";
    EXPECT_NE(line_of(child_, "stat").find(link), std::string::npos);
    ::kill(parent_, SIGKILL);
    EXPECT_TRUE(
        comes_true([&] { return line_of(child_, "stat").find(link) == std::string::npos; }));
  }
  [[nodiscard]] bool child_ends() const {
    return comes_true([this] { return !child_lives(); });
  }
  [[nodiscard]] bool child_lives() const {
    return std::filesystem::exists("/proc/" + std::to_string(child_) + "/exe");
  }

 private:
  static std::string line_of(pid_t pid, const char* name) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/" + name);
    std::string line;
    std::getline(file, line);
    return line;
  }
  template <typename Condition>
  static bool comes_true(Condition condition) {
    for (int i = 0; i < 1000 && !condition(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return condition();
  }
  pid_t stepd_ = 0;
  pid_t parent_ = 0;
  pid_t child_ = 0;
};

class ReapTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::getuid() != 0) GTEST_SKIP() << "needs root: runs processes as other users";
  }
  // A connection whose peer is this process.
  static Status serve(const std::string& bytes, uid_t allowed, std::string* answer = nullptr,
                      bool close_early = true) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    UniqueFd mine(ends[0]);
    UniqueFd theirs(ends[1]);
    EXPECT_EQ(::send(mine.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    if (close_early) ::shutdown(mine.get(), SHUT_WR);
    const Status status = ReapServer(UniqueFd(), allowed).serve(theirs);
    char text[64];
    const ssize_t got = ::recv(mine.get(), text, sizeof text, MSG_DONTWAIT);
    if (answer != nullptr)
      answer->assign(text, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    return status;
  }
  static wire::ReapAnswer ask(std::uint32_t job, std::uint32_t uid, std::vector<pid_t> pids) {
    std::string bytes;
    EXPECT_TRUE(serve(wire::encode(wire::ReapRequest{job, uid, std::move(pids)}), 0, &bytes).ok());
    const auto answer = wire::decode_reap_answer(bytes);
    EXPECT_TRUE(answer.has_value());
    return answer ? *answer : wire::ReapAnswer{};
  }
};

TEST_F(ReapTest, StopsATaskOfTheJobAndNothingElse) {
  const Step mine(77, kUser);
  const Step other(78, kUser);
  const Step foreign(77, kOther);
  // The task last: its slurmstepd ends with it.
  const auto answer = ask(77, kUser, {mine.stepd(), other.task(), foreign.task(), 1, mine.task()});
  EXPECT_EQ(answer.stopped, 1U);
  EXPECT_EQ(answer.refused, 4U);
  EXPECT_TRUE(mine.task_ends());
  EXPECT_TRUE(other.task_lives()) << "another job of the same user";
  EXPECT_TRUE(foreign.task_lives()) << "another user";
}

TEST_F(ReapTest, AStoppedTaskIsStoppedForGood) {
  const Step step(77, kUser);
  ASSERT_EQ(::kill(step.task(), SIGSTOP), 0);
  EXPECT_EQ(ask(77, kUser, {step.task()}).stopped, 1U);
  EXPECT_TRUE(step.task_ends());
}

// Its parent is named first and has ended long before its own turn comes.
TEST_F(ReapTest, StoppingAParentDoesNotSpareTheChild) {
  const Family family(77, kUser, "env -i");
  const Step other(78, kUser);
  std::vector<pid_t> pids(500, other.task());
  pids.insert(pids.begin(), family.parent());
  pids.push_back(family.child());
  const auto answer = ask(77, kUser, pids);
  EXPECT_EQ(answer.stopped, 2U);
  EXPECT_EQ(answer.refused, 500U);
  EXPECT_TRUE(family.child_ends());
}

TEST_F(ReapTest, AnOrphanIsKnownByItsEnvironment) {
  const Family family(77, kUser, "FIRST=1 SLURM_JOB_ID=77 LAST=1");
  family.orphan();
  EXPECT_EQ(ask(77, kOther, {family.child()}).refused, 1U) << "another user";
  EXPECT_EQ(ask(7, kUser, {family.child()}).refused, 1U) << "another job";
  EXPECT_EQ(ask(77, kUser, {family.child()}).stopped, 1U);
  EXPECT_TRUE(family.child_ends());
}

TEST_F(ReapTest, AnOrphanThatNamesNoJobIsRefused) {
  const Family family(77, kUser, "env -i");
  family.orphan();
  EXPECT_EQ(ask(77, kUser, {family.child()}).refused, 1U);
  EXPECT_TRUE(family.child_lives());
}

// What Slurm says comes first: a job that was submitted from within another one may show both.
TEST_F(ReapTest, AnEnvironmentDoesNotOverruleSlurm) {
  const Family family(78, kUser, "SLURM_JOB_ID=77");
  EXPECT_EQ(ask(77, kUser, {family.child()}).refused, 1U);
  EXPECT_TRUE(family.child_lives());
}

TEST_F(ReapTest, NeverInitItselfOrRoot) {
  const auto answer = ask(77, 0, {1, 0, -1, ::getpid(), ::getppid()});
  EXPECT_EQ(answer.stopped, 0U);
  EXPECT_EQ(answer.refused, 5U);
}

TEST_F(ReapTest, AProcessOutsideEveryJobIsRefused) {
  const pid_t lone = ::fork();
  if (lone == 0) {
    (void)!::setuid(kUser);
    for (;;) ::pause();
  }
  EXPECT_EQ(ask(77, kUser, {lone}).stopped, 0U);
  ::kill(lone, SIGKILL);
  ::waitpid(lone, nullptr, 0);
}

// A user may call a program slurmstepd; it is not root's.
TEST_F(ReapTest, AForgedStepdIsRefused) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t forged = ::fork();
  if (forged == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(ends[1], 4);
    (void)!::setuid(kUser);
    ::execl("/bin/bash", "slurmstepd: [77.0]", "-c", "sleep 100 & echo $! >&4; wait", nullptr);
    ::_exit(1);
  }
  char text[32] = {};
  ASSERT_GT(::read(ends[0], text, sizeof text - 1), 0);
  const auto child = static_cast<pid_t>(std::atoi(text));
  EXPECT_EQ(ask(77, kUser, {child}).refused, 1U);
  EXPECT_EQ(::kill(child, 0), 0);
  ::kill(child, SIGKILL);
  ::kill(forged, SIGKILL);
  ::waitpid(forged, nullptr, 0);
  for (const int fd : ends) ::close(fd);
}

// Its number may mean another process by now: that one is looked at anew and refused.
TEST_F(ReapTest, AnEndedPidIsGoneAndAReusedOneIsRefused) {
  pid_t number = 0;
  {
    const Step step(77, kUser);
    number = step.task();
    ::kill(number, SIGKILL);
    ASSERT_TRUE(step.task_ends());
  }
  EXPECT_EQ(ask(77, kUser, {number}).stopped, 0U);
  FILE* const last = std::fopen("/proc/sys/kernel/ns_last_pid", "w");
  if (last == nullptr) GTEST_SKIP() << "the kernel does not let us choose a pid";
  std::fprintf(last, "%d", number - 1);
  const bool chosen = std::fclose(last) == 0;
  const pid_t again = ::fork();
  if (again == 0) {
    (void)!::setuid(kUser);
    for (;;) ::pause();
  }
  const auto answer = ask(77, kUser, {number});
  const bool lives = ::kill(again, 0) == 0;
  ::kill(again, SIGKILL);
  ::waitpid(again, nullptr, 0);
  EXPECT_TRUE(lives);
  if (!chosen || again != number) GTEST_SKIP() << "somebody else got the number";
  EXPECT_EQ(answer.refused, 1U);
}

// A handle holds the process, not the number.
TEST_F(ReapTest, AHandleOfAnEndedProcessHitsNobody) {
  const Step step(77, kUser);
  const auto process = JobProcess::open(step.task(), 77, kUser);
  ASSERT_TRUE(process.has_value()) << process.error().to_string();
  ::kill(step.task(), SIGKILL);
  ASSERT_TRUE(step.task_ends());
  ::kill(step.stepd(), SIGKILL);
  for (int i = 0; i < 500 && process->kill().ok(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(process->kill().code(), Code::NOT_FOUND);
}

TEST_F(ReapTest, AnotherUserIsNotServed) {
  const Step step(77, kUser);
  const std::string bytes = wire::encode(wire::ReapRequest{77, kUser, {step.task()}});
  EXPECT_EQ(serve(bytes, kOther).code(), Code::PERMISSION);
  EXPECT_TRUE(step.task_lives());
}

TEST_F(ReapTest, ThousandsOfPidsAreAnswered) {
  std::vector<pid_t> pids;
  for (std::uint32_t i = 0; i < wire::kMaxReapPids; ++i)
    pids.push_back(static_cast<pid_t>(0x3f000000 + i));
  const Step step(77, kUser);
  pids.back() = step.task();
  const auto answer = ask(77, kUser, pids);
  EXPECT_EQ(answer.stopped, 1U);
  EXPECT_EQ(answer.gone + answer.refused, wire::kMaxReapPids - 1);
}

TEST_F(ReapTest, GarbageIsCutOff) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    std::string bytes(random() % 64, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    if (round % 2 == 0 && bytes.size() >= 4) bytes.replace(0, 4, "PXR1");
    EXPECT_FALSE(serve(bytes, 0).ok());
  }
  std::string many = wire::encode(wire::ReapRequest{1, 1, {}});
  many.replace(12, 4, "\xff\xff\xff\xff");
  EXPECT_EQ(serve(many, 0).code(), Code::PROTOCOL);
}

TEST_F(ReapTest, ASlowPeerIsCutOff) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(serve("PXR1", 0, nullptr, false).code(), Code::TIMEOUT);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(JobOfCgroup, ReadsWhatSlurmMakes) {
  EXPECT_EQ(job_of_cgroup("5:freezer:/slurm_node1/uid_1000/job_42/step_0/task_0\n0::/\n"), 42U);
  EXPECT_EQ(job_of_cgroup("0::/system.slice/slurmstepd.scope/job_7/step_batch/user/task_0\n"), 7U);
  EXPECT_EQ(job_of_cgroup("0::/user.slice/user-1000.slice/job_7\n"), 0U);
  EXPECT_EQ(job_of_cgroup("0::/slurm/uid_1/job_\n0::/slurm/uid_1/job_9x/a\n"), 0U);
  EXPECT_EQ(job_of_cgroup("0::/job_3/slurm\n"), 0U);
  EXPECT_EQ(job_of_cgroup(""), 0U);
}

TEST(JobOfEnvironment, ReadsWhatSlurmSets) {
  const auto of = [](std::string_view text) { return job_of_environment(text); };
  EXPECT_EQ(of(std::string_view("A=1\0SLURM_JOB_ID=42\0B=2\0", 24)), 42U);
  EXPECT_EQ(of("SLURM_JOB_ID=42"), 42U);
  EXPECT_EQ(of(std::string_view("XSLURM_JOB_ID=42\0SLURM_JOB_ID_=1\0", 34)), 0U);
  EXPECT_EQ(of(std::string_view("SLURM_JOB_ID=42x\0", 17)), 0U);
  EXPECT_EQ(of(std::string_view("SLURM_JOB_ID=42/7\0", 18)), 0U);
  EXPECT_EQ(of("SLURM_JOB_ID="), 0U);
  EXPECT_EQ(of(""), 0U);
}

TEST(JobOfTitle, ReadsASlurmstepd) {
  EXPECT_EQ(job_of_title("slurmstepd: [42.batch]"), 42U);
  EXPECT_EQ(job_of_title("slurmstepd: [42.0]"), 42U);
  EXPECT_EQ(job_of_title("slurmstepd"), 0U);
  EXPECT_EQ(job_of_title("slurmstepd: [x.0]"), 0U);
  EXPECT_EQ(job_of_title("slurmstepd: [42]"), 0U);
}

}  // namespace
}  // namespace plexrl::reap
