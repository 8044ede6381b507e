// SPDX-License-Identifier: Apache-2.0
// Runs of the controller on a FakeService, in a directory of their own.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cli/train/controller.h"
#include "unit/cli/train/fake_service.h"

namespace plexrl::cli {

class ControllerTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "plexrl-train-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
    options_.steps = 6;
    options_.prompts = 8;
    options_.samples = 4;
    options_.eval_prompts = 0;
    options_.summary = "wanted";  // the controller then hashes the final state
    stop_ = false;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  Result<nlohmann::json> run(FakeService& service) { return run(service, options_); }
  Result<nlohmann::json> run(FakeService& service, const TrainOptions& options) {
    testing::internal::CaptureStderr();
    auto environment = make_environment(options);
    auto log = TrainLog::open(options.log, options.resume);
    Controller controller(options, service, **environment, *log, system_clock(), stop_);
    auto result = controller.run();
    progress_ = testing::internal::GetCapturedStderr();
    return result;
  }
  // "1000=" is answered by "1000", and so on.
  static std::string problems(int count) {
    std::string text;
    for (int i = 1000; i < 1000 + count; ++i)
      text +=
          R"({"prompt":")" + std::to_string(i) + R"(=","answer":")" + std::to_string(i) + "\"}\n";
    return text;
  }
  // The step records of --log, without what a clock says and without the numbers of versions, which
  // count a checkpoint's ops too.
  std::vector<nlohmann::json> records() const {
    std::vector<nlohmann::json> result;
    std::ifstream file(options_.log);
    for (std::string line; std::getline(file, line);) {
      auto record = nlohmann::json::parse(line);
      if (record["phase"] != "grpo") continue;
      for (const char* name : {"wall_s", "wait_s", "tokens_per_s", "version"}) record.erase(name);
      result.push_back(std::move(record));
    }
    return result;
  }
  std::string path(const char* name) const { return directory_ + "/" + name; }

  std::string directory_;
  TrainOptions options_;
  std::atomic<bool> stop_{false};
  std::string progress_;
};

}  // namespace plexrl::cli
