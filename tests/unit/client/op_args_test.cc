// SPDX-License-Identifier: Apache-2.0
#include "client/op_args.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "client/c_api.h"

namespace plexrl::client {
namespace {

const std::int32_t kTokens[] = {1, 2, 3};
const float kFloats[] = {0.5F, 1.0F, 1.5F};

plexrl_generate_options good_generate(const plexrl_tokens* prompt) {
  plexrl_generate_options o{};
  o.size = sizeof o;
  o.prompts = prompt;
  o.prompt_count = 1;
  o.samples_per_prompt = 2;
  o.max_new_tokens = 8;
  o.temperature = 1;
  o.top_p = 1;
  return o;
}

TEST(GenerateArgs, AreCopied) {
  const plexrl_tokens prompt{kTokens, 3};
  const auto args = generate_args(good_generate(&prompt));
  ASSERT_TRUE(args.has_value());
  EXPECT_EQ(args->prompts[0]->tokens, (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(args->samples_per_prompt, 2U);
}

TEST(GenerateArgs, EveryWrongFieldIsNamed) {
  const plexrl_tokens prompt{kTokens, 3}, empty{nullptr, 0};
  using Change = void (*)(plexrl_generate_options&);
  const Change changes[] = {
      [](auto& o) { o.prompts = nullptr; },
      [](auto& o) { o.prompt_count = 0; },
      [](auto& o) { o.samples_per_prompt = 0; },
      [](auto& o) { o.max_new_tokens = 0; },
      [](auto& o) { o.temperature = -1; },
      [](auto& o) { o.temperature = NAN; },
      [](auto& o) { o.top_p = 0; },
      [](auto& o) { o.top_p = 1.5F; },
      [](auto& o) { o.stop_token_count = 1; },
  };
  for (const Change change : changes) {
    plexrl_generate_options options = good_generate(&prompt);
    change(options);
    const auto args = generate_args(options);
    ASSERT_FALSE(args.has_value());
    EXPECT_EQ(args.error().code(), Code::INVALID_ARGUMENT);
  }
  EXPECT_EQ(generate_args(good_generate(&empty)).error().text(),
            "prompts[0]: at least one token is needed");
}

TEST(ForwardBackwardArgs, ColumnsThatTheLossReadsAreNeeded) {
  const plexrl_datum sft{3, kTokens, kTokens, kFloats, nullptr, nullptr};
  const plexrl_datum rl{3, kTokens, kTokens, nullptr, kFloats, kFloats};
  plexrl_forward_backward_options options{};
  options.size = sizeof options;
  options.datum_count = 1;
  options.data = &sft;
  EXPECT_TRUE(forward_backward_args(options).has_value());
  options.loss = PLEXRL_LOSS_PPO;
  EXPECT_EQ(forward_backward_args(options).error().text(),
            "data[0]: this loss needs logprobs and advantages");
  options.data = &rl;
  EXPECT_TRUE(forward_backward_args(options).has_value());
  options.loss = PLEXRL_LOSS_DRO;
  EXPECT_EQ(forward_backward_args(options)->loss, wire::LossKind::Dro);
  options.loss = static_cast<plexrl_loss>(PLEXRL_LOSS_DRO + 1);
  EXPECT_EQ(forward_backward_args(options).error().code(), Code::INVALID_ARGUMENT);
}

TEST(ForwardBackwardArgs, ClipZeroMeansTheDefault) {
  const plexrl_datum rl{3, kTokens, kTokens, nullptr, kFloats, kFloats};
  plexrl_forward_backward_options options{};
  options.loss = PLEXRL_LOSS_PPO;
  options.data = &rl;
  options.datum_count = 1;
  EXPECT_FLOAT_EQ(forward_backward_args(options)->clip_low, 0.8F);
  options.clip_high = 3;
  EXPECT_FLOAT_EQ(forward_backward_args(options)->clip_low, 0.0F);
}

TEST(ForwardBackwardArgs, BetaZeroMeansTheDefault) {
  const plexrl_datum rl{3, kTokens, kTokens, nullptr, kFloats, kFloats};
  plexrl_forward_backward_options options{};
  options.loss = PLEXRL_LOSS_DRO;
  options.data = &rl;
  options.datum_count = 1;
  EXPECT_FLOAT_EQ(forward_backward_args(options)->beta, 0.01F);
  options.beta = 0.5;
  EXPECT_FLOAT_EQ(forward_backward_args(options)->beta, 0.5F);
  options.beta = std::numeric_limits<double>::min();  // a nothing of the caller's
  EXPECT_EQ(forward_backward_args(options)->beta, 0.0F);
  for (const double bad : {-0.1, static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    options.beta = bad;
    EXPECT_EQ(forward_backward_args(options).error().code(), Code::INVALID_ARGUMENT) << bad;
  }
}

TEST(OptimArgs, DefaultsAndBadNumbers) {
  plexrl_optim_options options{};
  options.learning_rate = 1e-3;
  EXPECT_DOUBLE_EQ(optim_args(options)->beta2, 0.95);
  options.learning_rate = NAN;
  EXPECT_EQ(optim_args(options).error().code(), Code::INVALID_ARGUMENT);
  options.learning_rate = -1;
  EXPECT_EQ(optim_args(options).error().code(), Code::INVALID_ARGUMENT);
}

TEST(StoreName, OnlyPlainNames) {
  EXPECT_TRUE(check_store_name("Step-12_a.b").ok());
  EXPECT_TRUE(check_store_name(std::string(64, 'x').c_str()).ok());
  for (const char* bad : {"", ".", "..", ".hidden", "a/b", "../x", "a b", "\xc3\xa4"})
    EXPECT_EQ(check_store_name(bad).code(), Code::INVALID_ARGUMENT) << bad;
  EXPECT_EQ(check_store_name(nullptr).code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(check_store_name(std::string(65, 'x').c_str()).code(), Code::INVALID_ARGUMENT);
}

TEST(Structs, SizeIsChecked) {
  plexrl_optim_options options{};
  options.size = sizeof options - 1;
  EXPECT_EQ(read_struct(&options, "x").error().code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(read_struct<plexrl_optim_options>(nullptr, "x").error().code(), Code::INVALID_ARGUMENT);
}

// A program that was built before beta and entropy_mean were there.
TEST(Structs, SizesOfEarlierHeadersAreTaken) {
  plexrl_forward_backward_options options{};
  options.size = 56;
  options.forward_only = 1;
  options.beta = 7;  // what lies behind its structure
  const auto read = read_struct(&options, "x");
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->forward_only, 1);
  EXPECT_EQ(read->beta, 0);
  options.size = 55;
  EXPECT_EQ(read_struct(&options, "x").error().code(), Code::INVALID_ARGUMENT);

  plexrl_train_result value{}, out{};
  value.loss_sum = 3;
  value.entropy_mean = 2;
  out.size = 48;
  out.entropy_mean = 7;
  ASSERT_TRUE(write_struct(&out, value, "x").ok());
  EXPECT_EQ(out.size, 48U);
  EXPECT_EQ(out.loss_sum, 3);
  EXPECT_EQ(out.entropy_mean, 7);
  out.size = sizeof out;
  ASSERT_TRUE(write_struct(&out, value, "x").ok());
  EXPECT_EQ(out.entropy_mean, 2);
  out.size = 47;
  EXPECT_EQ(write_struct(&out, value, "x").code(), Code::INVALID_ARGUMENT);
}

TEST(Structs, LaterFieldsAreFineWhileTheyAreZero) {
  struct Later {
    plexrl_optim_options known{};
    double added = 0;
  } later;
  later.known.size = sizeof later;
  EXPECT_TRUE(read_struct(&later.known, "x").has_value());
  later.added = 1;
  EXPECT_EQ(read_struct(&later.known, "x").error().code(), Code::UNSUPPORTED);
}

TEST(FillError, LongTextIsCutAndTerminated) {
  plexrl_error err;
  std::memset(&err, 0xff, sizeof err);
  fill_error(&err, Status(Code::BUSY, std::string(2000, 'x')), 7);
  EXPECT_EQ(std::strlen(err.text), sizeof err.text - 1);
  EXPECT_EQ(err.retry_after_ms, 7U);
  fill_error(nullptr, Status(Code::BUSY, "x"));
}

TEST(Guarded, ExceptionsBecomeCodes) {
  plexrl_error err{};
  EXPECT_EQ(guarded(&err, []() -> Status { throw std::bad_alloc(); }), PLEXRL_NO_CAPACITY);
  EXPECT_EQ(guarded(&err, []() -> Status { throw std::runtime_error("odd"); }), PLEXRL_INTERNAL);
  EXPECT_STREQ(err.text, "odd");
  EXPECT_EQ(guarded(&err, []() -> Status { throw 5; }), PLEXRL_INTERNAL);
}

}  // namespace
}  // namespace plexrl::client
