// SPDX-License-Identifier: Apache-2.0
// generate and logprobs: against the training forward, and exactness.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "engine_torch/compute_threads.h"
#include "engine_torch/counter_rng.h"
#include "engine_torch/sampling.h"
#include "engine_torch/train_decoder.h"
#include "held_model.h"

namespace plexrl::model {
namespace {

using wire::TrainMode;

wire::GenerateArgsT generate_args(std::vector<std::vector<std::int32_t>> prompts,
                                  std::uint32_t samples, std::uint32_t max_new,
                                  std::uint64_t version = 0) {
  wire::GenerateArgsT args;
  args.version = version;
  for (auto& tokens : prompts) args.prompts.push_back(prompt(std::move(tokens)));
  args.samples_per_prompt = samples;
  args.max_new_tokens = max_new;
  args.seed = 42;
  return args;
}

wire::GenerateResultT generate(HeldModel& model, wire::GenerateArgsT args,
                               const std::function<void()>& between = {}) {
  auto value = run_op(model, args_union(std::move(args)), -1, 0, between);
  EXPECT_TRUE(value) << value.error().to_string();
  return *value->AsGenerateResult();
}

std::vector<std::vector<float>> logprobs(HeldModel& model,
                                         const std::vector<std::vector<std::int32_t>>& rows,
                                         std::uint64_t version = 0) {
  wire::LogprobsArgsT args;
  args.version = version;
  for (const auto& row : rows) args.sequences.push_back(prompt(row));
  auto value = run_op(model, args_union(std::move(args)));
  EXPECT_TRUE(value) << value.error().to_string();
  std::vector<std::vector<float>> result;
  for (const auto& row : value->AsLogprobsResult()->rows) result.push_back(row->values);
  return result;
}

std::vector<std::vector<std::int32_t>> some_prompts(std::size_t count, std::int64_t vocab,
                                                    unsigned seed = 5) {
  std::mt19937 random(seed);
  std::vector<std::vector<std::int32_t>> prompts;
  for (std::size_t i = 0; i < count; ++i)
    prompts.push_back(random_tokens(random, 1 + random() % 11, vocab));
  return prompts;
}

// Decode with the KV cache against the full forward; here through an adapter, too.
void expect_the_training_forward(const ModelConfig& config, TrainMode mode) {
  HeldModel model(layout_of(config, mode, mode == TrainMode::Lora ? 5 : 0));
  model.shake(0.03);
  model.publish(3);
  const auto rows = some_prompts(6, config.vocab_size);
  const auto got = logprobs(model, rows, 3);
  const TrainDecoder decoder(model.state, false);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::vector<std::int64_t> ids(rows[r].begin(), rows[r].end());
    const auto n = static_cast<std::int64_t>(ids.size());
    const at::Tensor tokens = at::from_blob(ids.data(), {1, n}, at::kLong);
    const at::Tensor logp =
        at::log_softmax(at::mm(decoder.hidden(tokens).squeeze(0), decoder.head().t()), -1);
    ASSERT_EQ(got[r].size(), rows[r].size() - 1);
    for (std::int64_t i = 0; i + 1 < n; ++i)
      EXPECT_NEAR(got[r][static_cast<std::size_t>(i)],
                  logp[i][ids[static_cast<std::size_t>(i) + 1]].item<float>(), 2e-5F);
  }
}

TEST(Logprobs, AgreeWithTheTrainingForward) {
  ModelConfig stretched = demo_config();
  stretched.rope_scaling = {RopeScaling::Kind::kLlama3, 8.0, 1.0, 4.0, 32};
  for (const TrainMode mode : {TrainMode::Full, TrainMode::Lora})
    for (const ModelConfig& config :
         {demo_config(), tiny_config(Family::kQwen2), tiny_config(Family::kQwen3), stretched})
      expect_the_training_forward(config, mode);
}

TEST(Generate, ItsLogprobsAreThoseOfTheLogprobsOpBitForBit) {
  HeldModel model(layout_of(demo_config(), TrainMode::Full));
  model.publish(1);
  const auto prompts = some_prompts(9, 32);
  const auto result = generate(model, generate_args(prompts, 3, 12, 1));
  std::vector<std::vector<std::int32_t>> rows;
  for (std::size_t r = 0; r < result.sequences.size(); ++r) {
    rows.push_back(prompts[r / 3]);
    rows.back().insert(rows.back().end(), result.sequences[r]->tokens.begin(),
                       result.sequences[r]->tokens.end());
  }
  const auto want = logprobs(model, rows, 1);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const auto& got = result.sequences[r]->logprobs;
    const std::vector<float> tail(want[r].end() - static_cast<std::ptrdiff_t>(got.size()),
                                  want[r].end());
    EXPECT_EQ(got, tail) << r;
  }
}

// The row number selects random numbers, so the row alone must keep it: it is row 0 in both.
void expect_row_alone_equals_row_in_company(const ModelConfig& config) {
  for (const TrainMode mode : {TrainMode::Full, TrainMode::Lora}) {
    HeldModel model(layout_of(config, mode, mode == TrainMode::Lora ? 8 : 0));
    model.shake(0.05);
    model.publish(1);
    const auto prompts = some_prompts(33, config.vocab_size);
    const auto all = generate(model, generate_args(prompts, 1, 20, 1));
    for (const std::size_t size : {1U, 2U, 7U, 16U}) {
      const std::vector<std::vector<std::int32_t>> few(
          prompts.begin(), prompts.begin() + static_cast<std::ptrdiff_t>(size));
      const auto alone = generate(model, generate_args(few, 1, 20, 1));
      for (std::size_t r = 0; r < size; ++r) {
        EXPECT_EQ(alone.sequences[r]->tokens, all.sequences[r]->tokens);
        EXPECT_EQ(alone.sequences[r]->logprobs, all.sequences[r]->logprobs);
      }
    }
  }
}

TEST(Generate, RowAloneEqualsRowAmongThirtyTwo) {
  for (const ModelConfig& config :
       {demo_config(), tiny_config(Family::kQwen2), tiny_config(Family::kQwen3)})
    expect_row_alone_equals_row_in_company(config);
}

TEST(Logprobs, RowInvariantInAnyCompany) {
  HeldModel model(layout_of(demo_config(), TrainMode::Lora, 8));
  model.shake(0.05);
  model.publish(1);
  auto rows = some_prompts(300, 32);
  const auto together = logprobs(model, rows, 1);
  for (const std::size_t r : {0U, 17U, 123U, 299U})
    EXPECT_EQ(logprobs(model, {rows[r]}, 1)[0], together[r]) << r;
  std::reverse(rows.begin(), rows.end());
  const auto reversed = logprobs(model, rows, 1);
  for (std::size_t r = 0; r < rows.size(); ++r)
    ASSERT_EQ(reversed[r], together[rows.size() - 1 - r]);
}

TEST(Generate, ThreadsDoNotChangeTheBits) {
  HeldModel model(layout_of(demo_config(), TrainMode::Lora, 8));
  model.shake(0.05);
  model.publish(1);
  const auto prompts = some_prompts(64, 32);
  const auto one = generate(model, generate_args(prompts, 2, 8, 1));
  set_compute_threads(2);
  const auto two = generate(model, generate_args(prompts, 2, 8, 1));
  set_compute_threads(1);
  for (std::size_t r = 0; r < one.sequences.size(); ++r) {
    EXPECT_EQ(one.sequences[r]->tokens, two.sequences[r]->tokens);
    EXPECT_EQ(one.sequences[r]->logprobs, two.sequences[r]->logprobs);
  }
}

TEST(Generate, YieldAndOtherWorkBetweenStepsChangeNothing) {
  HeldModel model(layout_of(demo_config(), TrainMode::Full));
  HeldModel other(layout_of(demo_config(), TrainMode::Full), 1234);
  model.publish(1);
  other.publish(1);
  const auto prompts = some_prompts(40, 32);
  const auto plain = generate(model, generate_args(prompts, 2, 10, 1));
  int stops = 0;
  const auto stopped = generate(model, generate_args(prompts, 2, 10, 1), [&] {
    if (++stops % 3 == 0) (void)generate(other, generate_args({{1, 2, 3}}, 4, 5, 1));
  });
  EXPECT_GE(stops, 9);
  for (std::size_t r = 0; r < plain.sequences.size(); ++r) {
    EXPECT_EQ(plain.sequences[r]->tokens, stopped.sequences[r]->tokens);
    EXPECT_EQ(plain.sequences[r]->logprobs, stopped.sequences[r]->logprobs);
  }
}

TEST(Generate, SamplesOfAPromptDifferAndSeedsMatter) {
  HeldModel model(layout_of(demo_config(), TrainMode::None));
  const auto a = generate(model, generate_args({{1, 2, 3}}, 8, 16));
  EXPECT_NE(a.sequences[0]->tokens, a.sequences[1]->tokens);
  auto args = generate_args({{1, 2, 3}}, 8, 16);
  args.seed = 43;
  EXPECT_NE(generate(model, std::move(args)).sequences[0]->tokens, a.sequences[0]->tokens);
}

TEST(Generate, GreedyTakesTheMostLikelyToken) {
  HeldModel model(layout_of(demo_config(), TrainMode::None));
  auto args = generate_args({{4, 9, 1}}, 2, 8);
  args.temperature = 0;
  const auto result = generate(model, std::move(args));
  EXPECT_EQ(result.sequences[0]->tokens, result.sequences[1]->tokens);
  std::vector<std::int32_t> row = {4, 9, 1};
  for (std::size_t i = 0; i < 8; ++i) {
    float best = -INFINITY;
    for (std::int32_t t = 0; t < 32; ++t) {
      auto tried = row;
      tried.push_back(t);
      best = std::max(best, logprobs(model, {tried})[0].back());
    }
    EXPECT_EQ(result.sequences[0]->logprobs[i], best);
    row.push_back(result.sequences[0]->tokens[i]);
  }
}

TEST(Generate, StopTokenEndsTheRowAndIsKept) {
  HeldModel model(layout_of(demo_config(), TrainMode::None));
  auto args = generate_args(some_prompts(20, 32), 2, 30);
  args.stop_tokens = {3, 7, 11, 12};
  const auto result = generate(model, std::move(args));
  int stopped = 0;
  for (const auto& s : result.sequences) {
    EXPECT_EQ(s->tokens.size(), s->logprobs.size());
    const auto is_stop = [](std::int32_t t) { return t == 3 || t == 7 || t == 11 || t == 12; };
    EXPECT_EQ(std::count_if(s->tokens.begin(), s->tokens.end() - 1, is_stop), 0);
    EXPECT_EQ(s->finish == wire::FinishReason::Stop, is_stop(s->tokens.back()));
    stopped += s->finish == wire::FinishReason::Stop;
  }
  EXPECT_GT(stopped, 10);
}

TEST(Generate, LoraBaseVersionIgnoresTheAdapter) {
  HeldModel model(layout_of(demo_config(), TrainMode::Lora, 4));
  HeldModel base(layout_of(demo_config(), TrainMode::None));
  model.shake(0.1);
  model.publish(2);
  const auto rows = some_prompts(4, 32);
  EXPECT_EQ(logprobs(model, rows, 0), logprobs(base, rows, 0));
  EXPECT_NE(logprobs(model, rows, 2), logprobs(model, rows, 0));
}

TEST(Generate, FreshAdapterIsTheBase) {
  HeldModel model(layout_of(demo_config(), TrainMode::Lora, 4));
  model.publish(2);
  const auto rows = some_prompts(4, 32);
  EXPECT_EQ(logprobs(model, rows, 2), logprobs(model, rows, 0));
}

TEST(Generate, PublishedVersionIsImmutableWhileTrainingGoesOn) {
  HeldModel model(layout_of(demo_config(), TrainMode::Full));
  wire::SaveArgsT save;
  const auto saved = run_op(model, args_union(save), -1, 5);
  ASSERT_TRUE(saved);
  EXPECT_EQ(saved->AsSaveResult()->version, 5U);
  const auto rows = some_prompts(4, 32);
  const auto before = logprobs(model, rows, 5);
  model.shake(0.1);
  EXPECT_EQ(logprobs(model, rows, 5), before);
}

TEST(Generate, UnknownVersions) {
  HeldModel full(layout_of(demo_config(), TrainMode::Full));
  EXPECT_EQ(run_op(full, args_union(generate_args({{1}}, 1, 1, 0))).error().code(),
            Code::NOT_FOUND);
  EXPECT_EQ(run_op(full, args_union(generate_args({{1}}, 1, 1, 9))).error().code(),
            Code::NOT_FOUND);
}

TEST(Generate, BadArgumentsAreNamed) {
  HeldModel model(layout_of(demo_config(), TrainMode::None));
  const auto fails = [&](Code code, const char* word, auto&& spoil) {
    auto args = generate_args({{1, 2}, {3}}, 2, 4);
    spoil(args);
    const auto result = run_op(model, args_union(std::move(args)));
    ASSERT_FALSE(result) << word;
    EXPECT_EQ(result.error().code(), code) << word << ": " << result.error().text();
    EXPECT_NE(result.error().text().find(word), std::string::npos) << result.error().text();
  };
  using Args = wire::GenerateArgsT;
  constexpr Code kBad = Code::INVALID_ARGUMENT;
  fails(kBad, "no prompts", [](Args& a) { a.prompts.clear(); });
  fails(kBad, "prompts[1]", [](Args& a) { a.prompts[1]->tokens.clear(); });
  fails(kBad, "prompts[0][1] is 32", [](Args& a) { a.prompts[0]->tokens[1] = 32; });
  fails(kBad, "prompts[0][0] is -1", [](Args& a) { a.prompts[0]->tokens[0] = -1; });
  fails(Code::TOO_LARGE, "64 positions", [](Args& a) { a.max_new_tokens = 63; });
  fails(Code::TOO_LARGE, "positions", [](Args& a) { a.max_new_tokens = 70000; });
  fails(Code::TOO_LARGE, "rows", [](Args& a) { a.samples_per_prompt = UINT32_MAX; });
  fails(kBad, "at least 1", [](Args& a) { a.samples_per_prompt = 0; });
  fails(kBad, "at least 1", [](Args& a) { a.max_new_tokens = 0; });
  fails(kBad, "temperature", [](Args& a) { a.temperature = -1; });
  fails(kBad, "temperature", [](Args& a) { a.temperature = std::nanf(""); });
  fails(kBad, "top_p", [](Args& a) { a.top_p = 0; });
  fails(kBad, "top_p", [](Args& a) { a.top_p = 1.5F; });
  fails(kBad, "stop_tokens[0]", [](Args& a) { a.stop_tokens = {99}; });
}

TEST(Generate, TooLittleCacheIsRefused) {
  HeldModel model(layout_of(demo_config(), TrainMode::None));
  Arena cache(16);
  OpEnv env;
  env.state = &model.state;
  env.kv = std::as_writable_bytes(cache.span());
  EXPECT_EQ(make_op_run(env, args_union(generate_args({{1}}, 1, 4))).error().code(),
            Code::NO_CAPACITY);
}

TEST(Generate, DivergedWeightsAreReported) {
  HeldModel model(layout_of(demo_config(), TrainMode::None));
  model.base.span()[5] = std::nanf("");
  const auto result = run_op(model, args_union(generate_args({{0, 1}}, 1, 4)));
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().text().find("not finite"), std::string::npos);
}

TEST(Logprobs, BadArguments) {
  HeldModel model(layout_of(demo_config(), TrainMode::None));
  wire::LogprobsArgsT args;
  EXPECT_EQ(run_op(model, args_union(args)).error().code(), Code::INVALID_ARGUMENT);
  args.sequences.push_back(prompt(std::vector<std::int32_t>(65, 1)));
  EXPECT_EQ(run_op(model, args_union(args)).error().code(), Code::TOO_LARGE);
  args.sequences[0] = prompt({1, 99});
  EXPECT_EQ(run_op(model, args_union(args)).error().code(), Code::INVALID_ARGUMENT);
  args.sequences[0] = prompt({1});
  const auto one = run_op(model, args_union(args));
  ASSERT_TRUE(one);
  EXPECT_TRUE(one->AsLogprobsResult()->rows[0]->values.empty());
}

TEST(Sampling, FrequenciesFollowTheDistribution) {
  const float logits[] = {1.0F, 0.0F, -1.0F, 2.0F};
  SamplingScratch scratch;
  int counts[4] = {};
  const int draws = 20000;
  for (int i = 0; i < draws; ++i)
    ++counts[sample(logits, 4, {0.7F, 1.0F, 9}, 3, static_cast<std::uint32_t>(i), &scratch).token];
  double total = 0;
  for (const float l : logits) total += std::exp(static_cast<double>(l) / 0.7);
  for (int t = 0; t < 4; ++t) {
    const double p = std::exp(static_cast<double>(logits[t]) / 0.7) / total;
    EXPECT_NEAR(counts[t] / static_cast<double>(draws), p, 4 * std::sqrt(p * (1 - p) / draws));
  }
}

TEST(Sampling, TopPKeepsTheSmallestSet) {
  const float logits[] = {std::log(0.5F), std::log(0.3F), std::log(0.15F), std::log(0.05F)};
  SamplingScratch scratch;
  std::set<std::int32_t> seen;
  for (std::uint32_t i = 0; i < 2000; ++i)
    seen.insert(sample(logits, 4, {1.0F, 0.75F, 1}, 0, i, &scratch).token);
  EXPECT_EQ(seen, (std::set<std::int32_t>{0, 1}));
}

TEST(Sampling, LogprobIsOfTemperatureOne) {
  const float logits[] = {0.0F, 3.0F};
  SamplingScratch scratch;
  const SampledToken s = sample(logits, 2, {0.1F, 0.5F, 1}, 0, 0, &scratch);
  EXPECT_EQ(s.token, 1);
  EXPECT_NEAR(s.logprob, 3.0 - std::log(1 + std::exp(3.0)), 1e-6);
}

// Known answers of Philox4x32-10 (Random123's kat_vectors).
TEST(CounterRng, KnownAnswers) {
  EXPECT_EQ(philox(0, {0, 0, 0, 0}), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(UINT64_MAX, {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_GT(uniform53(0, 0), 0.0);
  EXPECT_LT(uniform53(UINT32_MAX, UINT32_MAX), 1.0);
}

}  // namespace
}  // namespace plexrl::model
