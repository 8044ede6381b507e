// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_process.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace plexrl::engine {
namespace {

EngineSpec spec() {
  EngineSpec out;
  out.id = EngineId{3};
  out.base_name = "b";
  out.base_path = "/m/b";
  out.mode = wire::TrainMode::Lora;
  out.threads = 4;
  out.activation_bytes = 5;
  out.socket_path = ::testing::TempDir() + "plexrl-spec-" + std::to_string(::getpid());
  return out;
}

void record(const EngineSpec& of, const std::string& text) {
  std::ofstream(of.socket_path + ".pid") << text;
}

TEST(EngineProcess, ArgumentsAreThoseOfTheProgram) {
  EXPECT_EQ(
      engine_arguments(spec()),
      (std::vector<std::string>{"plexrl-engine", "--id", "3", "--base-dir", "/m/b", "--base-name",
                                "b", "--mode", "lora", "--threads", "4", "--activation-bytes", "5",
                                "--device", "cpu", "--dtype", "float32"}));
}

TEST(EngineProcess, EnvironmentSetsThreadsAndNothingOfOurs) {
  ::setenv("PLEXRL_SECRET", "x", 1);
  const auto environment = engine_environment(spec());
  ::unsetenv("PLEXRL_SECRET");
  const auto has = [&](const std::string& word) {
    return std::find(environment.begin(), environment.end(), word) != environment.end();
  };
  EXPECT_TRUE(has("OMP_NUM_THREADS=4"));
  EXPECT_TRUE(has("OMP_WAIT_POLICY=PASSIVE"));
  EXPECT_FALSE(has("PLEXRL_SECRET=x"));
}

TEST(EngineProcess, AProgramThatIsNowhereIsNamedWithBothPlaces) {
  const auto found = find_engine_program();  // neither lies beside this test
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code(), Code::NOT_FOUND);
  EXPECT_NE(found.error().text().find("/plexrl-engine nor at "), std::string::npos);
  EXPECT_NE(found.error().text().find("libexec/plexrl-engine"), std::string::npos);
}

TEST(EngineProcess, ARecordedPidMustBeThatEngine) {
  const EngineSpec of = spec();
  EXPECT_EQ(recorded_engine(of), 0);
  for (const char* text : {"", "no number", "-1", "0", "1", "999999999"}) {
    record(of, text);
    EXPECT_EQ(recorded_engine(of), 0) << text;
  }
  record(of, std::to_string(::getpid()));  // a living process, but no engine
  EXPECT_EQ(recorded_engine(of), 0);
  ::unlink((of.socket_path + ".pid").c_str());
}

}  // namespace
}  // namespace plexrl::engine
