// SPDX-License-Identifier: Apache-2.0
// The program for machines with a GPU, run on the CPU: on the cpu backend, and on the cuda backend
// over the stub driver, whose device memory is the host's.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

namespace plexrl::model {
namespace {

struct Outcome {
  int status = -1;
  nlohmann::json rows;
};

Outcome gpu_grpo(const std::string& environment, const std::string& options) {
  const std::string command =
      environment + " " PLEXRL_GPU_GRPO " --threads 1 " + options + " 2>/dev/null";
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), &::pclose);
  std::string text;
  for (int c = std::fgetc(pipe.get()); c != EOF; c = std::fgetc(pipe.get()))
    text += static_cast<char>(c);
  Outcome out;
  out.status = WEXITSTATUS(::pclose(pipe.release()));
  out.rows = nlohmann::json::parse(text, nullptr, false);
  return out;
}

void expect_rows(const nlohmann::json& rows) {
  ASSERT_TRUE(rows.is_array());
  std::map<std::string, int> paths;
  for (const auto& row : rows) {
    EXPECT_EQ(row["device"], "cpu");
    ++paths[row["path"].get<std::string>()];
    if (row["path"] == "grpo") {
      EXPECT_GT(row["reward_last"].get<double>(), row["reward_first"].get<double>());
    }
    if (row["path"] == "switch") {
      EXPECT_NEAR(row["exposed_ratio"].get<double>(),
                  row["switch_exposed_s"].get<double>() / row["raw_copy_s"].get<double>(),
                  1e-4 * row["exposed_ratio"].get<double>());
    }
  }
  EXPECT_EQ(paths, (std::map<std::string, int>{{"commit", 2}, {"grpo", 2}, {"switch", 1}}));
}

TEST(GpuGrpo, LearnsAndSwitchesOnTheCpuBackend) {
  const Outcome outcome = gpu_grpo("", "--quick --device cpu");
  EXPECT_EQ(outcome.status, 0);
  expect_rows(outcome.rows);
}

const std::string kOverStub = "--quick --device cpu --library " PLEXRL_CUDA_STUB;

TEST(GpuGrpo, LearnsAndSwitchesOnTheCudaBackendOverTheStub) {
  const Outcome outcome = gpu_grpo("", kOverStub);
  EXPECT_EQ(outcome.status, 0);
  expect_rows(outcome.rows);
}

TEST(GpuGrpo, FailsWhereTheDriverFails) {
  for (const char* fault :
       {"cuMemMap:9:2", "cuMemcpyHtoDAsync:1:1", "cuMemcpyDtoHAsync:3:1", "cuMemHostRegister:1:2"})
    EXPECT_EQ(gpu_grpo("PLEXRL_CUDA_STUB_FAIL=" + std::string(fault), kOverStub).status, 1)
        << fault;
}

TEST(GpuGrpo, SaysWhatItCannotDo) {
  EXPECT_EQ(gpu_grpo("", "--unknown").status, 2);
  EXPECT_EQ(gpu_grpo("", "--device x").status, 1);
}

}  // namespace
}  // namespace plexrl::model
