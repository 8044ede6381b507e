// SPDX-License-Identifier: Apache-2.0
#include "slurm/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexrl::slurm {
namespace {

TEST(Options, TableIsInTheOrderOfTheEnum) {
  for (std::size_t i = 0; i < kOptionCount; ++i)
    EXPECT_EQ(option_table()[i].option, static_cast<Option>(i));
}

TEST(Options, AcceptsGoodValues) {
  const struct {
    Option option;
    const char* value;
  } cases[] = {
      {Option::kPool, "rl-1.x_y"}, {Option::kModel, "a"},        {Option::kModel, "a,b-2,c.d"},
      {Option::kTrain, "lora"},    {Option::kTrain, "lora:256"}, {Option::kTrain, "full"},
      {Option::kTrain, "none"},    {Option::kShare, "25"},       {Option::kShare, "100"},
      {Option::kSlowdown, "1"},    {Option::kSlowdown, "1.35"},  {Option::kSlowdown, "100"},
      {Option::kEnv, "none"},      {Option::kEnv, "openai"},     {Option::kEnv, "openai,tinker"}};
  for (const auto& c : cases) EXPECT_EQ(check_option(c.option, c.value).to_string(), "OK");
}

TEST(Options, RefusesBadValuesWithAdvice) {
  const struct {
    Option option;
    const char* value;
    const char* advice;
  } cases[] = {
      {Option::kPool, "", "write --plexrl-pool=NAME"},
      {Option::kPool, "v1:pool=rl", "not the name of a pool"},
      {Option::kPool, "a b", "not the name of a pool"},
      {Option::kPool, "-x", "not the name of a pool"},
      {Option::kModel, "", "write names with commas"},
      {Option::kModel, "a,", "write names with commas"},
      {Option::kModel, "a,a", "named twice"},
      {Option::kModel, "a,b,c,d,e,f,g,h,i", "at most 8"},
      {Option::kModel, "../x/y", "write names with commas"},
      {Option::kTrain, "", "write lora"},
      {Option::kTrain, "LORA", "write lora"},
      {Option::kTrain, "lora:", "the rank is a number"},
      {Option::kTrain, "lora:0", "the rank is a number"},
      {Option::kTrain, "lora:257", "the rank is a number"},
      {Option::kTrain, "lora:8x", "the rank is a number"},
      {Option::kTrain, "full:8", "write lora"},
      {Option::kShare, "", "write 25, 50 or 100"},
      {Option::kShare, "60", "write 25, 50 or 100"},
      {Option::kShare, "50%", "write 25, 50 or 100"},
      {Option::kShare, "050", "write 25, 50 or 100"},
      {Option::kSlowdown, "", "write a factor"},
      {Option::kSlowdown, "0.9", "write a factor"},
      {Option::kSlowdown, "-1", "write a factor"},
      {Option::kSlowdown, "1.", "write a factor"},
      {Option::kSlowdown, "1.2345", "write a factor"},
      {Option::kSlowdown, "nan", "write a factor"},
      {Option::kSlowdown, "100.001", "write a factor"},
      {Option::kSlowdown, "1e2", "write a factor"},
      {Option::kEnv, "", "write tinker, openai, tinker,openai or none"},
      {Option::kEnv, ",", "write tinker"},
      {Option::kEnv, "vllm", "write tinker"},
      {Option::kEnv, "tinker,", "write tinker"},
      {Option::kEnv, "tinker,none", "write tinker"},
      {Option::kEnv, "tinker,tinker", "write tinker"},
      {Option::kEnv, "tinker,openai,tinker", "write tinker"},
  };
  for (const auto& c : cases) {
    const Status status = check_option(c.option, c.value);
    EXPECT_EQ(status.code(), Code::INVALID_ARGUMENT) << c.value;
    EXPECT_THAT(status.text(), ::testing::HasSubstr(c.advice)) << c.value;
    EXPECT_THAT(status.text(), ::testing::StartsWith("--plexrl-")) << c.value;
  }
}

TEST(Options, ClientsHaveOneOrder) {
  const std::vector<std::string> both{"tinker", "openai"};
  EXPECT_EQ(parse_env("openai,tinker").value(), both);
  EXPECT_EQ(parse_env("tinker,openai").value(), both);
  EXPECT_EQ(parse_env("openai").value(), std::vector<std::string>{"openai"});
  EXPECT_TRUE(parse_env("none").value().empty());
}

TEST(Options, MessagesAreShortAndPrintable) {
  const std::string text = check_option(Option::kPool, std::string(900, '\x1b')).text();
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_LT(text.size(), 200U);
  EXPECT_THAT(check_option(Option::kPool, std::string(5000, 'a')).text(),
              ::testing::HasSubstr("longer than 1024"));
}

TEST(Options, SlowdownIsExactThousandths) {
  EXPECT_EQ(parse_slowdown("1.5").value(), 1500U);
  EXPECT_EQ(parse_slowdown("1.05").value(), 1050U);
  EXPECT_EQ(parse_slowdown("2.001").value(), 2001U);
  EXPECT_EQ(parse_slowdown("100").value(), 100000U);
}

}  // namespace
}  // namespace plexrl::slurm
