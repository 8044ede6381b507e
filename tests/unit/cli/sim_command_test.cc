// SPDX-License-Identifier: Apache-2.0
#include "cli/sim_command.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/commands.h"
#include "core/journal.h"

namespace plexrl::cli {
namespace {

class SimCommand : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "sim_command.XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
    write("w.yaml",
          "name: w</script>\njobs_total: 4\npools: [{name: p, gpus: 64}]\njobs:\n"
          "  - {name: rl, rollout_pool: p, train_pool: p, rollout_gpus: 4, train_gpus: 8, "
          "train_sharers: 2, parameters_b: 7, steps: 10, rollout_s: 50, train_s: 10}\n"
          "sensitivity: [{key: jobs.rl.train_s, factors: [2]}]\n");
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  [[nodiscard]] std::string path(const std::string& name) const { return dir_ + "/" + name; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
  }
  [[nodiscard]] std::string read(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  int run(std::vector<const char*> words) {
    words.insert(words.begin(), {"plexrl", "sim"});
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int status = run_program(static_cast<int>(words.size()), words.data());
    out_ = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    return status;
  }

  std::string dir_, out_, err_;
};

TEST_F(SimCommand, PrintsOneDocument) {
  ASSERT_EQ(
      run({path("w.yaml").c_str(), "--json", "--seed", "3", "--compare", "pack,fifo/isolated"}),
      kExitOk)
      << err_;
  const auto json = nlohmann::json::parse(out_);
  EXPECT_EQ(json["seed"], 3);
  EXPECT_EQ(json["compare"].size(), 2U);
  EXPECT_EQ(json["sensitivity"].size(), 1U);
  EXPECT_GT(json["device_hours_saved"]["split-async"], 0.2);
  const std::string first = out_;
  ASSERT_EQ(
      run({path("w.yaml").c_str(), "--json", "--seed", "3", "--compare", "pack,fifo/isolated"}),
      kExitOk);
  EXPECT_EQ(out_, first);
}

TEST_F(SimCommand, TheFileMayStandBehindWhatIsCompared) {
  EXPECT_EQ(run({"--no-sensitivity", "--compare", "pack,fifo/isolated", path("w.yaml").c_str()}),
            kExitOk)
      << err_;
}

TEST_F(SimCommand, PrintsATable) {
  ASSERT_EQ(run({path("w.yaml").c_str(), "--no-sensitivity"}), kExitOk) << err_;
  EXPECT_NE(out_.find("phase-aware"), std::string::npos) << out_;
  EXPECT_EQ(out_.find("varied"), std::string::npos);
}

TEST_F(SimCommand, WritesAPageThatLoadsNothing) {
  ASSERT_EQ(run({path("w.yaml").c_str(), "--report", path("r.html").c_str()}), kExitOk) << err_;
  const std::string page = read("r.html");
  EXPECT_NE(page.find("const series = {"), std::string::npos);
  EXPECT_EQ(page.find("@FIGURES@"), std::string::npos);
  EXPECT_EQ(page.find("http"), page.find("http://www.w3.org/2000/svg")) << "the namespace alone";
  EXPECT_EQ(page.find("http", page.find("http") + 1), std::string::npos);
  EXPECT_EQ(page.find("w</script>"), std::string::npos) << "a name must not end the script";
  EXPECT_NE(page.find("\"spans\":[["), std::string::npos);
}

TEST_F(SimCommand, ReplaysAndRecordsAJournal) {
  core::SchedulerConfig config;
  config.device_capacity_bytes = 100;
  const auto scheduler = core::Scheduler::create(config).value();
  std::string journal = core::encode_header({1, config, ""});
  const auto add = [&](const core::Event& event, std::int64_t ms) {
    const TimePoint at{ms * kMillisecond.ns};
    journal += core::encode_record(event, at, scheduler->step(event, at));
  };
  core::ModelAdded model;
  model.model = {1};
  model.tenant = {1};
  model.engine = {1};
  model.device_bytes = 10;
  add(model, 0);
  add(core::EngineUp{{1}}, 1);
  core::OpArrived op;
  op.op = {1};
  op.model = {1};
  op.kind = core::OpKind::kGenerate;
  add(op, 2);
  add(core::ModelResumed{{1}}, 3);
  add(core::OpFinished{{1}}, 8);
  write("j.journal", journal);
  ASSERT_EQ(
      run({"--replay", path("j.journal").c_str(), "--record", path("t.jsonl").c_str(), "--json"}),
      kExitOk)
      << err_;
  EXPECT_EQ(nlohmann::json::parse(out_)["records"], 5);
  EXPECT_NE(read("t.jsonl").find("[\"generate\",0,0.0,0.005,0]"), std::string::npos)
      << read("t.jsonl");
  journal[30] = static_cast<char>(journal[30] ^ 1);
  write("j.journal", journal);
  EXPECT_EQ(run({"--replay", path("j.journal").c_str()}), kExitFailed);
  EXPECT_NE(err_.find("j.journal"), std::string::npos) << err_;
}

TEST_F(SimCommand, SaysWhatIsWrong) {
  EXPECT_EQ(run({}), kExitUsage);
  EXPECT_EQ(run({path("none.yaml").c_str()}), kExitFailed);
  EXPECT_EQ(run({path("w.yaml").c_str(), "--policy", "best"}), kExitFailed);
  EXPECT_EQ(run({path("w.yaml").c_str(), "--placement", "best"}), kExitFailed);
  EXPECT_EQ(run({path("w.yaml").c_str(), "--seed", "-4"}), kExitUsage);
  EXPECT_EQ(run({path("w.yaml").c_str(), "--replay", "x"}), kExitUsage);
  EXPECT_EQ(run({path("w.yaml").c_str(), "--report", path("none/r.html").c_str()}), kExitFailed);
  write("bad.yaml", "name: x\njobs: 3\n");
  EXPECT_EQ(run({path("bad.yaml").c_str()}), kExitFailed);
  EXPECT_NE(err_.find("bad.yaml:2"), std::string::npos) << err_;
}

}  // namespace
}  // namespace plexrl::cli
