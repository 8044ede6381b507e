// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/engine_options.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace plexrl::worker {
namespace {

Result<EngineOptions> parse(std::vector<std::string> words) {
  words.insert(words.begin(), "plexrl-engine");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return parse_engine_options(static_cast<int>(argv.size()), argv.data());
}

const std::vector<std::string> kServe = {"--id",      "3",    "--base-dir",         "/m/tiny",
                                         "--mode",    "lora", "--base-name",        "tiny",
                                         "--threads", "2",    "--activation-bytes", "1000"};

std::vector<std::string> without(const std::string& option) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < kServe.size(); i += 2)
    if (kServe[i] != option) words.insert(words.end(), {kServe[i], kServe[i + 1]});
  return words;
}

TEST(EngineOptions, ReadsWhatPlexrldGives) {
  const auto options = parse(kServe).value();
  EXPECT_EQ(options.command, EngineOptions::Command::kServe);
  EXPECT_EQ(options.id, 3U);
  EXPECT_EQ(options.base_dir, "/m/tiny");
  EXPECT_EQ(options.base_name, "tiny");
  EXPECT_EQ(options.mode, wire::TrainMode::Lora);
  EXPECT_EQ(options.threads, 2);
  EXPECT_EQ(options.activation_bytes, 1000U);
  EXPECT_EQ(options.device, "cpu");
  EXPECT_EQ(options.type, model::WeightType::kFloat32);
  auto words = kServe;
  words.insert(words.end(), {"--dtype", "bfloat16"});
  EXPECT_EQ(parse(words).value().type, model::WeightType::kBFloat16);
}

TEST(EngineOptions, AMissingOptionIsNamed) {
  for (const char* option : {"--id", "--base-dir", "--base-name", "--mode", "--activation-bytes"}) {
    const auto options = parse(without(option));
    ASSERT_FALSE(options.has_value()) << option;
    EXPECT_EQ(options.error().text(), std::string(option) + " is missing");
  }
  EXPECT_TRUE(parse(without("--threads")).has_value());
}

TEST(EngineOptions, WrongValuesAreRefused) {
  for (const std::vector<std::string>& wrong :
       std::vector<std::vector<std::string>>{{"--id", "3x"},
                                             {"--id", "-1"},
                                             {"--id", ""},
                                             {"--threads", "0"},
                                             {"--threads", "99999"},
                                             {"--mode", "none"},
                                             {"--activation-bytes", "1e9"},
                                             {"--nonsense", "1"},
                                             {"--dtype", "float16"},
                                             {"--seed"}}) {
    auto words = kServe;
    words.insert(words.end(), wrong.begin(), wrong.end());
    EXPECT_EQ(parse(words).error().code(), Code::INVALID_ARGUMENT) << wrong[0];
  }
}

TEST(EngineOptions, InitModelNeedsAConfig) {
  EXPECT_FALSE(parse({"--init-model", "/tmp/x"}).has_value());
  const auto options =
      parse({"--init-model", "/tmp/x", "--config", "c.json", "--seed", "9"}).value();
  EXPECT_EQ(options.command, EngineOptions::Command::kInitModel);
  EXPECT_EQ(options.init_dir, "/tmp/x");
  EXPECT_EQ(options.config_path, "c.json");
  EXPECT_EQ(options.seed, 9U);
}

TEST(EngineOptions, BenchDecodeNeedsABase) {
  EXPECT_EQ(parse({"--bench-decode", "rows.json"}).error().text(), "--base-dir is missing");
  const std::vector<std::string> words = {"--bench-decode", "rows.json",      "--base-dir",
                                          "/m/tiny",        "--milliseconds", "250"};
  const auto options = parse(words).value();
  EXPECT_EQ(options.command, EngineOptions::Command::kBenchDecode);
  EXPECT_EQ(options.bench_path, "rows.json");
  EXPECT_EQ(options.base_dir, "/m/tiny");
  EXPECT_EQ(options.milliseconds, 250U);
  auto too_long = words;
  too_long.back() = "3600001";
  EXPECT_EQ(parse(too_long).error().code(), Code::INVALID_ARGUMENT);
}

TEST(EngineOptions, HelpAndVersionNeedNothingElse) {
  EXPECT_EQ(parse({"--help"}).value().command, EngineOptions::Command::kHelp);
  EXPECT_EQ(parse({"--version"}).value().command, EngineOptions::Command::kVersion);
}

}  // namespace
}  // namespace plexrl::worker
