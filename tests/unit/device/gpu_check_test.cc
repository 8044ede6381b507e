// SPDX-License-Identifier: Apache-2.0
// The program for machines with a GPU, run over the stub driver.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace plexrl::device {
namespace {

struct Outcome {
  int status = -1;
  nlohmann::json rows;
};

Outcome gpu_check(const std::string& environment, const std::string& options) {
  const std::string command = environment + " " PLEXRL_GPU_CHECK " " + options + " 2>/dev/null";
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), &::pclose);
  std::string text;
  for (int c = std::fgetc(pipe.get()); c != EOF; c = std::fgetc(pipe.get()))
    text += static_cast<char>(c);
  Outcome out;
  out.status = WEXITSTATUS(::pclose(pipe.release()));
  out.rows = nlohmann::json::parse(text, nullptr, false);
  return out;
}

const std::string kOverStub = "--quick --library " PLEXRL_CUDA_STUB;

TEST(GpuCheck, PassesAndPrintsARowForEverythingMeasured) {
  const Outcome outcome = gpu_check("", kOverStub);
  EXPECT_EQ(outcome.status, 0);
  ASSERT_TRUE(outcome.rows.is_array());
  std::set<std::string> paths;
  for (const auto& row : outcome.rows) {
    EXPECT_EQ(row["device"], "stub device");
    paths.insert(row["path"].get<std::string>());
    if (row.contains("ratio")) {
      EXPECT_NEAR(row["ratio"].get<double>(),
                  row["gbps"].get<double>() / row["raw_gbps"].get<double>(), 1e-3);
    }
  }
  EXPECT_EQ(paths, (std::set<std::string>{"map-cost", "pin", "device-host", "host-device", "both",
                                          "suspend-resume"}));
}

TEST(GpuCheck, FailsWhereTheDriverFails) {
  for (const char* fault : {"cuMemMap:30:2", "cuMemcpyHtoDAsync:3:1", "cuMemHostRegister:3:2"})
    EXPECT_EQ(gpu_check("PLEXRL_CUDA_STUB_FAIL=" + std::string(fault), kOverStub).status, 1)
        << fault;
}

TEST(GpuCheck, WithoutADeviceEverythingIsSkipped) {
  for (const Outcome& outcome : {gpu_check("PLEXRL_CUDA_STUB_DEVICES=0", kOverStub),
                                 gpu_check("", "--library libcuda-that-nobody-has.so.1")}) {
    EXPECT_EQ(outcome.status, 77);
    EXPECT_EQ(outcome.rows, nlohmann::json::array());
  }
  EXPECT_EQ(gpu_check("", "--unknown").status, 2);
}

}  // namespace
}  // namespace plexrl::device
