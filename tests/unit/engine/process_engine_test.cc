// SPDX-License-Identifier: Apache-2.0
// The conformance suite on plexrl-engine itself, and what only a process can do wrong.
#include "engine/process_engine.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "engine/engine_conformance.h"
#include "engine/engine_process.h"
#include "engine/stray_engines.h"
#include "wire/unix_socket.h"

namespace plexrl::engine {
namespace {

constexpr const char* kConfig = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
  "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "vocab_size": 32, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
  "rope_theta": 10000.0, "tie_word_embeddings": true, "attention_bias": false})";

// build/tests/unit/test_engine -> build/plexrl-engine
std::string program() {
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  return (self.parent_path().parent_path().parent_path() / "plexrl-engine").string();
}

// Written once per process, removed at its end.
class TinyModel {
 public:
  TinyModel() {
    std::string pattern = ::testing::TempDir() + "plexrl-model-XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
    std::ofstream(dir_ + "/shape.json") << kConfig;
    const std::string command =
        program() + " --init-model " + dir_ + "/m --config " + dir_ + "/shape.json --seed 3";
    good_ = std::system(command.c_str()) == 0;
  }
  ~TinyModel() {
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
  }
  TinyModel(const TinyModel&) = delete;
  TinyModel& operator=(const TinyModel&) = delete;
  [[nodiscard]] bool good() const { return good_; }
  [[nodiscard]] std::string path() const { return dir_ + "/m"; }

 private:
  std::string dir_;
  bool good_ = false;
};

const TinyModel& model() {
  static const TinyModel tiny;
  return tiny;
}

EngineSpec spec_in(const std::string& dir) {
  EngineSpec spec;
  spec.id = EngineId{17};
  spec.base_name = "tiny";
  spec.base_path = model().path();
  spec.mode = wire::TrainMode::Full;
  spec.activation_bytes = 32 << 20;
  spec.socket_path = dir + "/17.sock";
  return spec;
}

std::string reason_to_skip() {
  return ::access(program().c_str(), X_OK) == 0 ? "" : "plexrl-engine is not built (no LibTorch)";
}

EngineKind process_kind() {
  return {"process",
          [](loop::EventLoop& loop, EngineListener& listener, const std::string& dir) {
            return make_process_engine(loop, program(), spec_in(dir), listener);
          },
          true, reason_to_skip()};
}

INSTANTIATE_TEST_SUITE_P(Process, EngineConformance, ::testing::Values(process_kind()),
                         [](const auto& kind) { return kind.param.name; });

class ProcessEngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!reason_to_skip().empty()) GTEST_SKIP() << reason_to_skip();
    ASSERT_TRUE(model().good());
  }
};

EngineKind broken_kind(std::function<void(EngineSpec&)> change, std::string other_program = "") {
  EngineKind kind = process_kind();
  kind.make = [change = std::move(change), other_program](
                  loop::EventLoop& loop, EngineListener& listener, const std::string& dir) {
    EngineSpec spec = spec_in(dir);
    change(spec);
    return make_process_engine(loop, other_program.empty() ? program() : other_program,
                               std::move(spec), listener, Duration{20 * kSecond.ns});
  };
  return kind;
}

TEST_F(ProcessEngineTest, ABaseThatIsNotThereIsAnErrorOfDescribe) {
  const EngineKind kind = broken_kind([](EngineSpec& spec) { spec.base_path = "/nonexistent"; });
  EngineFixture f(kind);
  f.start();
  wire::EngineDescribeT ask;
  ask.mode = wire::TrainMode::Full;
  const auto reply = f.ask(ask);
  ASSERT_FALSE(reply.has_value());
  EXPECT_NE(reply.error().text().find("/nonexistent"), std::string::npos);
  EXPECT_TRUE(f.ask(wire::EnginePingT()).has_value());
}

TEST_F(ProcessEngineTest, ATruncatedFileIsAnErrorOfResumeAndTheEngineStays) {
  const std::string copy = ::testing::TempDir() + "plexrl-truncated-" + std::to_string(::getpid());
  std::filesystem::copy(model().path(), copy);
  const EngineKind kind = broken_kind([&](EngineSpec& spec) { spec.base_path = copy; });
  EngineFixture f(kind);
  f.start();
  f.attach();
  f.describe();
  std::filesystem::resize_file(copy + "/model.safetensors", 1000);
  EXPECT_FALSE(f.resume().ok());
  EXPECT_TRUE(f.ask(wire::EnginePingT()).has_value());
  std::filesystem::remove_all(copy);
}

TEST_F(ProcessEngineTest, AProgramThatCannotBeStartedIsReportedLater) {
  const EngineKind kind = broken_kind([](EngineSpec&) {}, "/nonexistent/plexrl-engine");
  EngineFixture f(kind);
  f.engine().start();
  EXPECT_TRUE(f.downs.empty());
  ASSERT_TRUE(f.wait_until([&] { return !f.downs.empty(); }));
  EXPECT_NE(f.downs[0].text().find("/nonexistent/plexrl-engine"), std::string::npos);
}

TEST_F(ProcessEngineTest, AProgramThatEndsAtOnceIsReported) {
  const EngineKind kind = broken_kind([](EngineSpec&) {}, "/bin/false");
  EngineFixture f(kind);
  f.engine().start();
  ASSERT_TRUE(f.wait_until([&] { return !f.downs.empty(); }));
  EXPECT_EQ(f.downs[0].code(), Code::ENGINE_DOWN);
  EXPECT_EQ(f.engine().pid(), 0);
}

TEST_F(ProcessEngineTest, DeathFromOutsideIsNoticed) {
  const EngineKind kind = process_kind();
  EngineFixture f(kind);
  f.start();
  ::kill(f.engine().pid(), SIGKILL);
  ASSERT_TRUE(f.wait_until([&] { return !f.downs.empty(); }));
  EXPECT_EQ(f.downs[0].code(), Code::ENGINE_DOWN);
}

TEST_F(ProcessEngineTest, DestroyingItLeavesNoProcess) {
  int pid = 0;
  {
    const EngineKind kind = process_kind();
    EngineFixture f(kind);
    f.start();
    pid = f.engine().pid();
  }
  EXPECT_NE(::kill(pid, 0), 0);
}

TEST_F(ProcessEngineTest, WhatIsEndedBeforeItsHelloGoesAtOnce) {
  const EngineKind kind = process_kind();
  EngineFixture f(kind);
  f.engine().start();
  const int pid = f.engine().pid();
  ASSERT_NE(pid, 0);
  f.engine().stop(Duration{60 * kSecond.ns});
  EXPECT_TRUE(f.wait_until([&] { return f.engine().pid() == 0; }));
  EXPECT_NE(::kill(pid, 0), 0);
  EXPECT_FALSE(f.hello.has_value());
}

// Long before the time for the hello is over, which is meant for loading and for moves.
TEST_F(ProcessEngineTest, AnEngineThatStandsStillBeforeItsHelloIsEnded) {
  const EngineKind kind = broken_kind([](EngineSpec&) {});
  EngineFixture f(kind);
  f.start();
  const TimePoint start = system_clock().now();
  ::kill(f.engine().pid(), SIGSTOP);
  f.engine().detach();
  f.recreate();
  f.engine().start();
  ASSERT_TRUE(f.wait_until([&] { return !f.downs.empty(); }));
  EXPECT_NE(f.downs[0].text().find("stands still"), std::string::npos) << f.downs[0].to_string();
  EXPECT_LT((system_clock().now() - start).ns, 15 * kSecond.ns);  // of the 20 s
  f.downs.clear();
  f.start();
}

// ---- engines that nobody knows any more

class StrayEngines : public ProcessEngineTest {
 protected:
  void SetUp() override {
    ProcessEngineTest::SetUp();
    if (IsSkipped()) return;
    stray_ = std::make_unique<EngineFixture>(kind_);
    stray_->start();
    socket_ = stray_->engine().spec().socket_path;
    pid_ = stray_->engine().pid();
  }
  [[nodiscard]] static std::string folder_of(EngineFixture& f) {
    return std::filesystem::path(f.engine().spec().socket_path).parent_path();
  }
  [[nodiscard]] std::string folder() { return folder_of(*stray_); }
  // Waits: a process that was killed is our child and stays until it is waited for.
  [[nodiscard]] static bool ended(int pid) { return ::waitpid(pid, nullptr, WNOHANG) == pid; }

  const EngineKind kind_ = process_kind();
  std::unique_ptr<EngineFixture> stray_;
  std::string socket_;
  int pid_ = 0;
};

TEST_F(StrayEngines, OneWithoutARowIsEndedWithItsFiles) {
  stray_->engine().detach();
  end_stray_engines(folder(), {EngineId{16}});
  EXPECT_TRUE(ended(pid_));
  EXPECT_FALSE(std::filesystem::exists(socket_));
  EXPECT_FALSE(std::filesystem::exists(socket_ + ".pid"));
}

TEST_F(StrayEngines, OneWithARowLivesOn) {
  stray_->engine().detach();
  end_stray_engines(folder(), {EngineId{17}});
  stray_->recreate();
  stray_->start();
  EXPECT_EQ(stray_->engine().pid(), pid_);
}

TEST_F(StrayEngines, OneWithoutFilesIsFoundToo) {
  stray_->engine().detach();
  std::filesystem::remove(socket_);
  std::filesystem::remove(socket_ + ".pid");
  end_stray_engines(folder(), {});
  EXPECT_TRUE(ended(pid_));
}

TEST_F(StrayEngines, OneOfAnotherRunDirectoryIsNotTouched) {
  EngineFixture other(kind_);
  other.start();
  stray_->engine().detach();
  // A stale pid file that names the other one, which has the same number.
  std::ofstream(socket_ + ".pid") << other.engine().pid() << "\n";
  end_stray_engines(folder(), {});
  EXPECT_TRUE(ended(pid_));
  EXPECT_TRUE(other.ask(wire::EnginePingT()).has_value());
  end_stray_engines(folder() + "/missing", {});
  EXPECT_TRUE(other.ask(wire::EnginePingT()).has_value());
}

TEST_F(StrayEngines, AStandingOneIsEnded) {
  stray_->engine().detach();
  ::kill(pid_, SIGSTOP);
  end_stray_engines(folder(), {});
  EXPECT_TRUE(ended(pid_));
}

TEST_F(StrayEngines, OnlyFilesOfEnginesAreRemoved) {
  for (const char* name : {"/5.sock", "/5.sock.pid", "/note", "/x.sock", "/5.sock.pid.pid"})
    std::ofstream(folder() + name) << "1";
  end_stray_engines(folder(), {EngineId{17}});
  EXPECT_FALSE(std::filesystem::exists(folder() + "/5.sock"));
  EXPECT_FALSE(std::filesystem::exists(folder() + "/5.sock.pid"));
  EXPECT_TRUE(std::filesystem::exists(folder() + "/note"));
  EXPECT_TRUE(std::filesystem::exists(folder() + "/x.sock"));
  EXPECT_TRUE(std::filesystem::exists(folder() + "/5.sock.pid.pid"));
  EXPECT_TRUE(stray_->ask(wire::EnginePingT()).has_value());
}

TEST_F(ProcessEngineTest, TheEnvironmentIsClean) {
  ::setenv("PLEXRL_TOKEN", "secret", 1);
  const EngineKind kind = process_kind();
  EngineFixture f(kind);
  f.start();
  ::unsetenv("PLEXRL_TOKEN");
  std::ifstream file("/proc/" + std::to_string(f.engine().pid()) + "/environ");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(text.find("PLEXRL_TOKEN"), std::string::npos);
  EXPECT_NE(text.find("OMP_WAIT_POLICY=PASSIVE"), std::string::npos);
  EXPECT_NE(text.find("GLIBC_TUNABLES="), std::string::npos);
}

TEST_F(ProcessEngineTest, NoOtherDescriptorsAreInherited) {
  const int leak = ::open("/dev/zero", O_RDONLY);  // no O_CLOEXEC, as a library might
  const EngineKind kind = process_kind();
  EngineFixture f(kind);
  f.start();
  const std::string dir = "/proc/" + std::to_string(f.engine().pid()) + "/fd";
  for (const auto& entry : std::filesystem::directory_iterator(dir))
    EXPECT_NE(std::filesystem::read_symlink(entry.path()), "/dev/zero");
  ::close(leak);
}

// Whatever moment the engine dies in, the epoch before stays whole and recovery continues from it.
TEST_F(ProcessEngineTest, KillDuringACommitLeavesTheEpochBefore) {
  const EngineKind kind = process_kind();
  EngineFixture f(kind);
  f.start();
  f.attach();
  f.describe();
  ASSERT_TRUE(f.resume().ok());
  ASSERT_EQ(f.train_step(1), 1U);
  ASSERT_TRUE(f.commit(1, 0).has_value());
  const std::string epoch = f.all_committed(0);
  for (int delay_us = 0; delay_us < 1000; delay_us += 250) {
    ASSERT_EQ(f.train_step(3), 2U);
    const int pid = f.engine().pid();
    std::thread killer([=] {
      ::usleep(static_cast<useconds_t>(delay_us));
      ::kill(pid, SIGKILL);
    });
    static_cast<void>(f.commit(2, 1));
    killer.join();
    ASSERT_TRUE(f.wait_until([&] { return !f.downs.empty(); }));
    EXPECT_EQ(f.all_committed(0), epoch);
    f.downs.clear();
    f.start();
    f.attach();
    ASSERT_TRUE(f.resume(1, 2, true).ok());
  }
  ASSERT_TRUE(f.commit(3, 2).has_value());
  EXPECT_EQ(f.all_committed(2), epoch);
}

}  // namespace
}  // namespace plexrl::engine
