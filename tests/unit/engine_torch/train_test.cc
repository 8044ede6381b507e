// SPDX-License-Identifier: Apache-2.0
// forward_backward and optim_step against autograd, finite differences and hand computation.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine_torch/train_decoder.h"
#include "held_model.h"

namespace plexrl::model {
namespace {

using wire::LossKind;
using wire::TrainMode;

std::unique_ptr<wire::DatumT> datum(std::mt19937& random, std::size_t length, std::int64_t vocab) {
  auto d = std::make_unique<wire::DatumT>();
  d->tokens = random_tokens(random, length, vocab);
  d->target_tokens = random_tokens(random, length, vocab);
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < length; ++i) {
    d->weights.push_back(i == 0 ? 0.0F : normal(random));  // signed
    d->advantages.push_back(i == 0 ? 0.0F : normal(random));
    d->logprobs.push_back(i == 0 ? 0.0F : -3.0F + 0.5F * normal(random));
  }
  return d;
}

wire::ForwardBackwardArgsT batch(const ModelConfig& c, LossKind loss, unsigned seed = 1,
                                 std::vector<std::size_t> lengths = {5, 9, 3}) {
  std::mt19937 random(seed);
  wire::ForwardBackwardArgsT args;
  args.loss = loss;
  args.beta = 0.3F;
  for (const std::size_t length : lengths) args.data.push_back(datum(random, length, c.vocab_size));
  return args;
}

wire::ForwardBackwardResultT forward_backward(HeldModel& model, wire::ForwardBackwardArgsT args,
                                              const std::function<void()>& between = {}) {
  auto value = run_op(model, args_union(std::move(args)), -1, 0, between);
  EXPECT_TRUE(value) << value.error().to_string();
  return *value->AsForwardBackwardResult();
}

// What a policy loss makes larger, at each position.
at::Tensor gain(const wire::ForwardBackwardArgsT& args, const at::Tensor& logp, const at::Tensor& q,
                const at::Tensor& a) {
  const at::Tensor r = at::exp(logp - q);
  const at::Tensor clipped = r.clamp(args.clip_low, args.clip_high);
  if (args.loss == LossKind::ImportanceSampling) return r * a;
  if (args.loss == LossKind::Ppo) return at::minimum(r * a, clipped * a);
  if (args.loss == LossKind::Cispo) return clipped.detach() * a * logp;
  const at::Tensor drift = (logp - q).square() * (0.5 * static_cast<double>(args.beta));
  return logp * a - drift * (a != 0);
}

// The loss of the whole batch as plain autograd computes it, datum by datum; gradients add to the
// arena. What the op must equal.
at::Tensor oracle_loss(const TrainDecoder& decoder, const wire::ForwardBackwardArgsT& args) {
  at::Tensor total = at::zeros({});
  for (const auto& d : args.data) {
    const auto n = static_cast<std::int64_t>(d->tokens.size());
    const auto floats = [&](std::vector<float>& v) {
      return at::from_blob(v.data(), {n}, at::kFloat).clone();
    };
    const auto ints = [&](std::vector<std::int32_t>& v) {
      return at::from_blob(v.data(), {n}, at::kInt).to(at::kLong);
    };
    const at::Tensor states = decoder.hidden(ints(d->tokens).unsqueeze(0)).squeeze(0);
    const at::Tensor logits = at::mm(states, decoder.head().t());
    const at::Tensor logp =
        at::log_softmax(logits, -1).gather(1, ints(d->target_tokens).unsqueeze(1)).squeeze(1);
    if (args.loss == LossKind::CrossEntropy) {
      total = total - (floats(d->weights) * logp).sum();
      continue;
    }
    total = total - gain(args, logp, floats(d->logprobs), floats(d->advantages)).sum();
  }
  return total;
}

struct Case {
  TrainMode mode;
  LossKind loss;
  bool tied;
  Family family = Family::kLlama;
};
class Gradients : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(
    All, Gradients,
    testing::Values(Case{TrainMode::Full, LossKind::CrossEntropy, false},
                    Case{TrainMode::Full, LossKind::CrossEntropy, true},
                    Case{TrainMode::Full, LossKind::ImportanceSampling, true},
                    Case{TrainMode::Full, LossKind::Ppo, false},
                    Case{TrainMode::Lora, LossKind::CrossEntropy, false},
                    Case{TrainMode::Lora, LossKind::Ppo, true},
                    Case{TrainMode::Full, LossKind::Cispo, true},
                    Case{TrainMode::Lora, LossKind::Cispo, false},
                    Case{TrainMode::Full, LossKind::Dro, false},
                    Case{TrainMode::Lora, LossKind::Dro, true},
                    Case{TrainMode::Full, LossKind::Ppo, true, Family::kQwen2},
                    Case{TrainMode::Full, LossKind::CrossEntropy, false, Family::kQwen3},
                    Case{TrainMode::Lora, LossKind::CrossEntropy, true, Family::kQwen2},
                    Case{TrainMode::Lora, LossKind::Ppo, false, Family::kQwen3}));

// Answers to two prompts, and a datum of its own before, between and after them.
wire::ForwardBackwardArgsT answers(const ModelConfig& c, LossKind loss) {
  std::mt19937 random(21);
  wire::ForwardBackwardArgsT args = batch(c, loss, 7, {9, 14, 12, 13, 11, 20, 17, 18, 12});
  const auto share = [&](std::size_t first, std::size_t end, std::size_t prompt) {
    for (std::size_t d = first; d < end; ++d)
      std::copy_n(args.data[first]->tokens.begin(), prompt, args.data[d]->tokens.begin());
  };
  share(1, 4, 9);
  share(5, 8, 16);
  return args;
}

// What the op leaves against what plain autograd does.
void expect_gradients_of_autograd(const Case& of,
                                  wire::ForwardBackwardArgsT (*make)(const ModelConfig&,
                                                                     LossKind)) {
  ModelConfig config = tiny_config(of.family);
  config.tied_head = of.tied;
  const std::uint32_t rank = of.mode == TrainMode::Lora ? 3 : 0;
  HeldModel model(layout_of(config, of.mode, rank));
  HeldModel other(layout_of(config, of.mode, rank));
  model.shake(0.05);
  other.shake(0.05);
  const auto result = forward_backward(model, make(config, of.loss));
  const TrainDecoder decoder(other.state, true);
  const at::Tensor loss = oracle_loss(decoder, make(config, of.loss));
  loss.backward();
  EXPECT_NEAR(result.loss_sum, loss.item<double>(), 1e-4 * std::abs(result.loss_sum) + 1e-4);
  float largest = 0;
  float difference = 0;
  for (std::size_t i = 0; i < model.gradients.span().size(); ++i) {
    largest = std::max(largest, std::abs(other.gradients.span()[i]));
    difference =
        std::max(difference, std::abs(model.gradients.span()[i] - other.gradients.span()[i]));
  }
  EXPECT_GT(largest, 0.01F);
  EXPECT_LT(difference, 2e-5F * std::max(1.0F, largest));
}

TEST_P(Gradients, AgreeWithAutograd) {
  expect_gradients_of_autograd(
      GetParam(), [](const ModelConfig& config, LossKind loss) { return batch(config, loss); });
}

TEST_P(Gradients, OfAnswersThatShareTheirPromptAgreeWithAutograd) {
  expect_gradients_of_autograd(GetParam(), answers);
}

TEST_P(Gradients, AgreeWithFiniteDifferences) {
  ModelConfig config = tiny_config(GetParam().family);
  config.tied_head = GetParam().tied;
  HeldModel model(layout_of(config, GetParam().mode, GetParam().mode == TrainMode::Lora ? 3 : 0));
  model.shake(0.05);
  // The factor of cispo has no derivative: bounds that are one number hold it.
  const auto held = [&] {
    auto args = batch(config, GetParam().loss);
    if (args.loss == LossKind::Cispo) args.clip_low = args.clip_high = 1.1F;
    return args;
  };
  (void)forward_backward(model, held());
  std::mt19937 random(5);
  const float h = 2e-3F;
  for (const TensorSlot& slot : model.layout.trainable.slots) {
    const std::size_t at = slot.offset + random() % slot.elements();
    const auto loss_at = [&](float shift) {
      const float before = model.weights.span()[at];
      model.weights.span()[at] = before + shift;
      auto args = held();
      args.forward_only = true;
      const double loss = forward_backward(model, std::move(args)).loss_sum;
      model.weights.span()[at] = before;
      return loss;
    };
    const double slope = (loss_at(h) - loss_at(-h)) / (2.0 * static_cast<double>(h));
    // Ppo has kinks, single precision has noise.
    EXPECT_NEAR(model.gradients.span()[at], slope, 0.03 * std::abs(slope) + 0.02) << slot.name;
  }
}

TEST(ForwardBackward, LoraLeavesTheBaseAlone) {
  HeldModel model(layout_of(tiny_config(), TrainMode::Lora, 4));
  const std::vector<float> base = model.base.copy();
  (void)forward_backward(model, batch(tiny_config(), LossKind::CrossEntropy));
  EXPECT_EQ(model.base.copy(), base);
  EXPECT_TRUE(model.state.gradients_pending);
}

TEST(ForwardBackward, ForwardOnlyGivesTheSameNumbersAndNoGradients) {
  HeldModel model(layout_of(tiny_config(), TrainMode::Full));
  auto args = batch(tiny_config(), LossKind::Ppo);
  args.forward_only = true;
  const auto only = forward_backward(model, std::move(args));
  EXPECT_FALSE(model.state.gradients_pending);
  for (const float g : model.gradients.span()) ASSERT_EQ(g, 0.0F);
  const auto both = forward_backward(model, batch(tiny_config(), LossKind::Ppo));
  EXPECT_EQ(only.loss_sum, both.loss_sum);
  EXPECT_EQ(only.logprobs[1]->values, both.logprobs[1]->values);
}

// Alone nothing is shared; the numbers of each answer are the same but for rounding.
TEST(ForwardBackward, SharingAPromptDoesNotChangeTheLogProbabilities) {
  HeldModel model(layout_of(tiny_config(), TrainMode::Lora, 3));
  model.shake(0.05);
  const auto args = [] {
    auto all = answers(tiny_config(), LossKind::Ppo);
    all.forward_only = true;
    return all;
  };
  const auto together = forward_backward(model, args());
  std::uint64_t count = 0;
  double loss = 0;
  for (std::size_t d = 0; d < together.logprobs.size(); ++d) {
    auto one = args();
    one.data.erase(one.data.begin() + static_cast<std::ptrdiff_t>(d) + 1, one.data.end());
    one.data.erase(one.data.begin(), one.data.end() - 1);
    const auto alone = forward_backward(model, std::move(one));
    count += alone.token_count;
    loss += alone.loss_sum;
    ASSERT_EQ(alone.logprobs[0]->values.size(), together.logprobs[d]->values.size());
    for (std::size_t i = 0; i < alone.logprobs[0]->values.size(); ++i)
      EXPECT_NEAR(alone.logprobs[0]->values[i], together.logprobs[d]->values[i], 2e-6F)
          << "datum " << d << " position " << i;
  }
  EXPECT_EQ(together.token_count, count);
  EXPECT_NEAR(together.loss_sum, loss, 1e-5 * std::abs(loss));
}

TEST(ForwardBackward, MetricsByHand) {
  HeldModel model(layout_of(tiny_config(), TrainMode::Full));
  const auto args = batch(tiny_config(), LossKind::Ppo);
  const auto result = forward_backward(model, batch(tiny_config(), LossKind::Ppo));
  double loss = 0, ratio = 0, drop = 0, clipped = 0;
  std::uint64_t count = 0;
  for (std::size_t d = 0; d < args.data.size(); ++d)
    for (std::size_t i = 0; i < args.data[d]->tokens.size(); ++i) {
      const double a = args.data[d]->advantages[i];
      if (a == 0) continue;
      const double logp = result.logprobs[d]->values[i];
      const double q = args.data[d]->logprobs[i];
      const double r = std::exp(logp - q);
      ++count, ratio += r, drop += q - logp;
      clipped += (a > 0 && r > 1.2) || (a < 0 && r < 0.8);
      loss -= std::min(r * a, std::clamp(r, 0.8, 1.2) * a);
    }
  EXPECT_EQ(result.token_count, count);
  const auto n = static_cast<double>(count);
  EXPECT_NEAR(result.loss_sum, loss, 1e-5);
  EXPECT_NEAR(result.ratio_mean, ratio / n, 1e-6);
  EXPECT_NEAR(result.logprob_drop_mean, drop / n, 1e-6);
  EXPECT_NEAR(result.clip_fraction, clipped / n, 1e-6);
  EXPECT_GT(clipped, 0);
}

TEST(ForwardBackward, ClippedFractionOfCispoHasBothSides) {
  HeldModel model(layout_of(tiny_config(), TrainMode::Full));
  const auto args = batch(tiny_config(), LossKind::Cispo);
  const auto result = forward_backward(model, batch(tiny_config(), LossKind::Cispo));
  double loss = 0, clipped = 0, count = 0;
  for (std::size_t d = 0; d < args.data.size(); ++d)
    for (std::size_t i = 0; i < args.data[d]->tokens.size(); ++i) {
      const double a = args.data[d]->advantages[i];
      if (a == 0) continue;
      const double logp = result.logprobs[d]->values[i];
      const double r = std::exp(logp - static_cast<double>(args.data[d]->logprobs[i]));
      ++count, clipped += r > 1.2 || r < 0.8;
      loss -= std::clamp(r, 0.8, 1.2) * a * logp;
    }
  EXPECT_NEAR(result.loss_sum, loss, 1e-5);
  EXPECT_NEAR(result.clip_fraction, clipped / count, 1e-6);
  EXPECT_GT(clipped, 0);
  EXPECT_LT(clipped, count);
}

// Of the positions that count, over several micro-batches; the same without gradients.
TEST(ForwardBackward, EntropyIsTheMeanOfThePositionsThatCount) {
  const std::vector<std::size_t> lengths(120, 13);
  HeldModel model(layout_of(demo_config(), TrainMode::Lora, 8));
  model.shake(0.05);
  const TrainDecoder decoder(model.state, false);
  auto args = batch(demo_config(), LossKind::Ppo, 3, lengths);
  double total = 0, count = 0;
  for (const auto& d : args.data) {
    const auto n = static_cast<std::int64_t>(d->tokens.size());
    const at::Tensor ids = at::from_blob(d->tokens.data(), {1, n}, at::kInt).to(at::kLong);
    const at::Tensor logits = at::mm(decoder.hidden(ids).squeeze(0), decoder.head().t());
    const at::Tensor logp = at::log_softmax(logits.detach().to(at::kDouble), -1);
    const at::Tensor entropy = -(logp.exp() * logp).sum(-1);
    for (std::int64_t i = 0; i < n; ++i) {
      if (d->advantages[static_cast<std::size_t>(i)] == 0) continue;
      total += entropy[i].item<double>();
      ++count;
    }
  }
  args.forward_only = true;
  const auto only = forward_backward(model, std::move(args));
  EXPECT_NEAR(only.entropy_mean, total / count, 1e-6);
  EXPECT_GT(only.entropy_mean, 0.1);
  const auto both = forward_backward(model, batch(demo_config(), LossKind::Ppo, 3, lengths));
  EXPECT_EQ(both.entropy_mean, only.entropy_mean);
  const auto supervised =
      forward_backward(model, batch(demo_config(), LossKind::CrossEntropy, 3, lengths));
  EXPECT_EQ(supervised.entropy_mean, only.entropy_mean);  // the same positions count
}

TEST(ForwardBackward, GradientsAddUpUntilTheStep) {
  HeldModel model(layout_of(tiny_config(), TrainMode::Full));
  (void)forward_backward(model, batch(tiny_config(), LossKind::CrossEntropy));
  const std::vector<float> once = model.gradients.copy();
  (void)forward_backward(model, batch(tiny_config(), LossKind::CrossEntropy));
  for (std::size_t i = 0; i < once.size(); ++i)
    ASSERT_NEAR(model.gradients.span()[i], 2 * once[i], 1e-4F * std::abs(once[i]) + 1e-6F);
}

TEST(ForwardBackward, SameOpTwiceGivesTheSameBits) {
  std::vector<float> bits[2];
  for (std::vector<float>& b : bits) {
    HeldModel model(layout_of(demo_config(), TrainMode::Full));
    (void)forward_backward(
        model, batch(demo_config(), LossKind::Ppo, 3, std::vector<std::size_t>(200, 13)));
    b = model.gradients.copy();
  }
  EXPECT_EQ(bits[0], bits[1]);
}

TEST(ForwardBackward, InterruptionsDoNotChangeTheBits) {
  const std::vector<std::size_t> lengths(200, 13);
  HeldModel plain(layout_of(demo_config(), TrainMode::Lora, 8));
  (void)forward_backward(plain, batch(demo_config(), LossKind::Ppo, 3, lengths));
  HeldModel parked(layout_of(demo_config(), TrainMode::Lora, 8));
  HeldModel other(layout_of(demo_config(), TrainMode::Full));
  int stops = 0;
  (void)forward_backward(parked, batch(demo_config(), LossKind::Ppo, 3, lengths), [&] {
    // Another tenant works meanwhile and this one's gradients are parked.
    ++stops;
    const std::vector<float> saved = parked.gradients.copy();
    std::fill(parked.gradients.span().begin(), parked.gradients.span().end(), std::nanf(""));
    (void)forward_backward(other, batch(demo_config(), LossKind::CrossEntropy, 8));
    std::copy(saved.begin(), saved.end(), parked.gradients.span().begin());
  });
  EXPECT_GE(stops, 2);
  EXPECT_EQ(parked.gradients.copy(), plain.gradients.copy());
}

// A ratio that overflows in the last datum: nothing of the first micro-batches may stay.
void expect_rolled_back(bool pending) {
  HeldModel model(layout_of(demo_config(), TrainMode::Full));
  if (pending) (void)forward_backward(model, batch(demo_config(), LossKind::CrossEntropy, 4));
  const std::vector<float> before = model.gradients.copy();
  auto args =
      batch(demo_config(), LossKind::ImportanceSampling, 3, std::vector<std::size_t>(200, 13));
  args.data.back()->logprobs.back() = -1e30F;
  args.data.back()->advantages.back() = 1.0F;
  const auto result = run_op(model, args_union(std::move(args)));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), Code::INVALID_ARGUMENT);
  EXPECT_NE(result.error().text().find("data[199] position 12"), std::string::npos)
      << result.error().text();
  EXPECT_EQ(model.gradients.copy(), before);
  EXPECT_EQ(model.state.gradients_pending, pending);
}
TEST(ForwardBackward, FailureLeavesNoGradients) { expect_rolled_back(false); }
TEST(ForwardBackward, FailureKeepsEarlierGradients) { expect_rolled_back(true); }

TEST(ForwardBackward, AbandonUndoesTheMicroBatchesDone) {
  HeldModel model(layout_of(demo_config(), TrainMode::Full));
  OpEnv env;
  env.state = &model.state;
  auto run = make_op_run(env, args_union(batch(demo_config(), LossKind::CrossEntropy, 3,
                                               std::vector<std::size_t>(200, 13))));
  ASSERT_TRUE(run);
  ASSERT_FALSE(*(*run)->step());
  EXPECT_NE(model.gradients.copy(), std::vector<float>(model.gradients.span().size()));
  (*run)->abandon();
  EXPECT_EQ(model.gradients.copy(), std::vector<float>(model.gradients.span().size()));
}

TEST(ForwardBackward, BadArgumentsAreNamedAndChangeNothing) {
  HeldModel model(layout_of(tiny_config(), TrainMode::Full));
  const auto fails = [&](Code code, const char* word, auto&& spoil) {
    auto args = batch(tiny_config(), LossKind::Ppo);
    spoil(args);
    const auto result = run_op(model, args_union(std::move(args)));
    ASSERT_FALSE(result) << word;
    EXPECT_EQ(result.error().code(), code) << word;
    EXPECT_NE(result.error().text().find(word), std::string::npos) << result.error().text();
  };
  using Args = wire::ForwardBackwardArgsT;
  constexpr Code kBad = Code::INVALID_ARGUMENT;
  fails(kBad, "no data", [](Args& a) { a.data.clear(); });
  fails(kBad, "data[1].tokens[2]", [](Args& a) { a.data[1]->tokens[2] = 19; });
  fails(kBad, "data[1].target_tokens[0]", [](Args& a) { a.data[1]->target_tokens[0] = -1; });
  fails(kBad, "target_tokens has", [](Args& a) { a.data[0]->target_tokens.pop_back(); });
  fails(kBad, "advantages has", [](Args& a) { a.data[0]->advantages.clear(); });
  fails(kBad, "logprobs[1]", [](Args& a) { a.data[0]->logprobs[1] = std::nanf(""); });
  fails(kBad, "advantages[1]", [](Args& a) { a.data[0]->advantages[1] = INFINITY; });
  fails(kBad, "clip_low", [](Args& a) { a.clip_low = 2.0F; });
  fails(kBad, "clip_low", [](Args& a) { a.loss = LossKind::Cispo, a.clip_low = 2.0F; });
  fails(kBad, "clip_low", [](Args& a) { a.loss = LossKind::Cispo, a.clip_high = INFINITY; });
  fails(kBad, "beta", [](Args& a) { a.loss = LossKind::Dro, a.beta = -0.1F; });
  fails(kBad, "beta", [](Args& a) { a.loss = LossKind::Dro, a.beta = std::nanf(""); });
  fails(kBad, "ratio", [](Args& a) { a.loss = LossKind::Cispo, a.data[0]->logprobs[1] = -1e4F; });
  fails(kBad, "data[2]", [](Args& a) { a.data[2]->tokens.clear(); });
  fails(Code::UNSUPPORTED, "loss", [](Args& a) { a.loss = static_cast<LossKind>(9); });
  fails(Code::TOO_LARGE, "positions", [](Args& a) {
    for (auto* v : {&a.data[0]->tokens, &a.data[0]->target_tokens}) v->resize(33);
  });
  for (const float g : model.gradients.span()) ASSERT_EQ(g, 0.0F);
}

TEST(ForwardBackward, SamplingOnlyModelRefusesTraining) {
  HeldModel model(layout_of(tiny_config(), TrainMode::None));
  const auto result = run_op(model, args_union(batch(tiny_config(), LossKind::CrossEntropy)));
  EXPECT_EQ(result.error().code(), Code::UNSUPPORTED);
}

wire::OptimStepArgsT step_args(double lr, double clip = 0) {
  wire::OptimStepArgsT args;
  args.learning_rate = lr;
  args.grad_clip_norm = clip;
  return args;
}

TEST(OptimStep, CountsClearsAndReportsTheNorm) {
  HeldModel model(layout_of(tiny_config(), TrainMode::Full));
  (void)forward_backward(model, batch(tiny_config(), LossKind::CrossEntropy));
  double squares = 0;
  for (const float g : model.gradients.span())
    squares += static_cast<double>(g) * static_cast<double>(g);
  const auto value = run_op(model, args_union(step_args(1e-3)));
  ASSERT_TRUE(value) << value.error().to_string();
  EXPECT_EQ(value->AsOptimStepResult()->step, 1U);
  EXPECT_NEAR(value->AsOptimStepResult()->grad_norm, std::sqrt(squares), 1e-9);
  EXPECT_FALSE(model.state.gradients_pending);
  for (const float g : model.gradients.span()) ASSERT_EQ(g, 0.0F);
}

TEST(OptimStep, ClippingScalesTheGradients) {
  HeldModel model(layout_of(tiny_config(), TrainMode::Full));
  (void)forward_backward(model, batch(tiny_config(), LossKind::CrossEntropy));
  const std::vector<float> g = model.gradients.copy();
  const auto value = run_op(model, args_union(step_args(1e-3, 0.5)));
  ASSERT_TRUE(value);
  const double factor = 0.5 / (value->AsOptimStepResult()->grad_norm + 1e-6);
  ASSERT_LT(factor, 1.0);
  for (std::size_t i = 0; i < g.size(); ++i)
    ASSERT_NEAR(model.m.span()[i], 0.1 * factor * static_cast<double>(g[i]), 1e-6);
}

TEST(OptimStep, PaddingStaysZero) {
  HeldModel model(layout_of(tiny_config(), TrainMode::Full));
  for (int i = 0; i < 3; ++i) {
    (void)forward_backward(model, batch(tiny_config(), LossKind::CrossEntropy));
    auto args = step_args(1e-2);
    args.weight_decay = 0.1;
    ASSERT_TRUE(run_op(model, args_union(args)));
  }
  std::size_t end = 0;
  for (const TensorSlot& slot : model.layout.trainable.slots) {
    for (std::size_t i = end; i < slot.offset; ++i) ASSERT_EQ(model.weights.span()[i], 0.0F);
    end = slot.offset + slot.elements();
  }
}

TEST(OptimStep, BadArgumentsAndMissingGradients) {
  HeldModel model(layout_of(tiny_config(), TrainMode::Full));
  EXPECT_EQ(run_op(model, args_union(step_args(1e-3))).error().code(), Code::INVALID_ARGUMENT);
  (void)forward_backward(model, batch(tiny_config(), LossKind::CrossEntropy));
  for (const double lr : {-1.0, std::nan(""), static_cast<double>(INFINITY)})
    EXPECT_EQ(run_op(model, args_union(step_args(lr))).error().code(), Code::INVALID_ARGUMENT);
  auto args = step_args(1e-3);
  args.beta2 = 1.0;
  EXPECT_NE(run_op(model, args_union(args)).error().text().find("beta2"), std::string::npos);
  EXPECT_TRUE(model.state.gradients_pending);
  model.gradients.span()[0] = INFINITY;
  const std::vector<float> weights = model.weights.copy();
  EXPECT_EQ(run_op(model, args_union(step_args(1e-3))).error().code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(model.weights.copy(), weights);
}

TEST(Training, SupervisedLearnsToCopy) {
  for (const TrainMode mode : {TrainMode::Full, TrainMode::Lora}) {
    ModelConfig config = tiny_config();
    HeldModel model(layout_of(config, mode, mode == TrainMode::Lora ? 8 : 0));
    std::mt19937 random(11);
    double first = 0, last = 0;
    for (int i = 0; i < 40; ++i) {
      wire::ForwardBackwardArgsT args;
      for (int d = 0; d < 32; ++d) {
        auto x = std::make_unique<wire::DatumT>();
        x->tokens = random_tokens(random, 4, 8);
        x->target_tokens = x->tokens;  // copy the current token
        x->weights.assign(4, 1.0F / 128);
        args.data.push_back(std::move(x));
      }
      const double loss = forward_backward(model, std::move(args)).loss_sum;
      if (i == 0) first = loss;
      last = loss;
      ASSERT_TRUE(run_op(model, args_union(step_args(1e-2, 1.0))));
    }
    EXPECT_GT(first, 2.0);
    EXPECT_LT(last, 0.7 * first) << static_cast<int>(mode);
  }
}

}  // namespace
}  // namespace plexrl::model
