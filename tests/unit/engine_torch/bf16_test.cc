// SPDX-License-Identifier: Apache-2.0
// Models of type bfloat16: products, decoding and training against float32, and row exactness.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>

#include "engine_torch/arena_math.h"
#include "engine_torch/bf16_linear.h"
#include "engine_torch/model_dir.h"
#include "engine_torch/train_decoder.h"
#include "held_model.h"
#include "models/half.h"

namespace plexrl::model {
namespace {

using wire::LossKind;
using wire::TrainMode;

constexpr WeightType kHalf = WeightType::kBFloat16;
// What bfloat16 may cost in these small models, whose weights have a standard deviation of 0.1.
constexpr float kLogprobsApart = 0.1F;
constexpr float kPathsApart = 0.02F;
constexpr double kGradientsApart = 0.05;
constexpr double kLossApart = 0.2;  // of 48 tokens

const Bf16* numbers(const at::Tensor& tensor) {
  return reinterpret_cast<const Bf16*>(tensor.data_ptr());
}
float largest(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<float>();
}

// The ways to multiply that the CPU has.
class Bf16Maths {
 public:
  ~Bf16Maths() { EXPECT_TRUE(set_bf16_math(own_)); }
  std::vector<Bf16Math> all() const {
    std::vector<Bf16Math> maths = {Bf16Math::kWidened, Bf16Math::kNarrow};
    if (own_ == Bf16Math::kInstruction) maths.push_back(own_);
    return maths;
  }

 private:
  Bf16Math own_ = bf16_math();
};

struct Shape {
  std::int64_t rows, in, out;
};
class Bf16Gemm : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, Bf16Gemm,
                         testing::Values(Shape{1, 1, 1}, Shape{5, 7, 3}, Shape{33, 128, 32},
                                         Shape{130, 384, 128}, Shape{64, 24, 18}, Shape{17, 31, 65},
                                         Shape{7, 66, 1027}));

TEST_P(Bf16Gemm, AgreesWithAtenInDouble) {
  const auto [rows, in, out] = GetParam();
  const at::Tensor x = at::randn({rows, in}).to(at::kBFloat16);
  const at::Tensor w = at::randn({out, in}).to(at::kBFloat16);
  const at::Tensor slopes = at::randn({rows, out}).to(at::kBFloat16);
  const at::Tensor want = at::mm(x.to(at::kDouble), w.to(at::kDouble).t()).to(at::kFloat);
  const at::Tensor back = at::mm(slopes.to(at::kDouble), w.to(at::kDouble)).to(at::kFloat);
  const Bf16Maths maths;
  for (const Bf16Math math : maths.all()) {
    ASSERT_TRUE(set_bf16_math(math));
    const at::Tensor y = at::full({rows, out}, 3.0);
    row_gemm_bf16(numbers(x), numbers(w), y.data_ptr<float>(), rows, in, out);
    EXPECT_LT(largest(y, want), 1e-5F * std::sqrt(static_cast<float>(in)));
    const at::Tensor z = at::full({rows, in}, 3.0);
    row_gemm_bf16_back(numbers(slopes), numbers(w), z.data_ptr<float>(), rows, out, in);
    EXPECT_LT(largest(z, back), 1e-5F * std::sqrt(static_cast<float>(out)));
  }
}

TEST_P(Bf16Gemm, BitsDoNotDependOnTheTiles) {
  const auto [rows, in, out] = GetParam();
  const at::Tensor x = at::randn({rows, in}).to(at::kBFloat16);
  const at::Tensor w = at::randn({out, in}).to(at::kBFloat16);
  const at::Tensor slopes = at::randn({rows, out}).to(at::kBFloat16);
  const Bf16Maths maths;
  const at::Tensor y[2] = {at::zeros({rows, out}), at::zeros({rows, out})};
  const at::Tensor z[2] = {at::zeros({rows, in}), at::zeros({rows, in})};
  for (const int narrow : {0, 1}) {
    ASSERT_TRUE(set_bf16_math(narrow != 0 ? Bf16Math::kNarrow : Bf16Math::kWidened));
    row_gemm_bf16(numbers(x), numbers(w), y[narrow].data_ptr<float>(), rows, in, out);
    row_gemm_bf16_back(numbers(slopes), numbers(w), z[narrow].data_ptr<float>(), rows, out, in);
  }
  EXPECT_TRUE(at::equal(y[0], y[1]));
  EXPECT_TRUE(at::equal(z[0], z[1]));
}

TEST_P(Bf16Gemm, BitsOfARowDoNotDependOnTheOthers) {
  const auto [rows, in, out] = GetParam();
  const at::Tensor x = at::randn({rows, in}).to(at::kBFloat16);
  const at::Tensor w = at::randn({out, in}).to(at::kBFloat16);
  const Bf16Maths maths;
  for (const Bf16Math math : maths.all()) {
    ASSERT_TRUE(set_bf16_math(math));
    const at::Tensor all = at::empty({rows, out});
    row_gemm_bf16(numbers(x), numbers(w), all.data_ptr<float>(), rows, in, out);
    for (const std::int64_t count : {1, 2, 3, 5}) {
      for (std::int64_t r = 0; r + count <= rows; ++r) {
        const at::Tensor few = at::empty({count, out});
        row_gemm_bf16(numbers(x) + r * in, numbers(w), few.data_ptr<float>(), count, in, out);
        ASSERT_TRUE(at::equal(few, all.narrow(0, r, count))) << r << " of " << count;
      }
    }
  }
}

TEST(Bf16, RoundsAsFilesAreRounded) {
  std::vector<float> x = {0.0F,         -0.0F,       1.0F,
                          1.00390625F,  1.01171875F, 3e38F,
                          3.4e38F,      1e-40F,      std::numeric_limits<float>::infinity(),
                          std::nanf("")};
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (int i = 0; i < 1000; ++i) x.push_back(normal(random));
  std::vector<Bf16> y(x.size());
  round_bf16(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], to_bfloat16(x[i])) << x[i];
  std::vector<float> back(x.size());
  widen_bf16(y.data(), back.data(), static_cast<std::int64_t>(x.size()));
  for (std::size_t i = 0; i + 1 < x.size(); ++i)
    EXPECT_TRUE(std::isnan(x[i]) || back[i] == from_bfloat16(y[i])) << x[i];
}

TEST(Bf16, RoundingPassesTheGradient) {
  at::Tensor x = at::randn({100});
  x.set_requires_grad(true);
  const at::Tensor y = round_through(x);
  EXPECT_TRUE(at::equal(y.detach(), x.detach().to(at::kBFloat16).to(at::kFloat)));
  y.backward(at::full({100}, 1.0 + 1.0 / 1024));
  EXPECT_TRUE(at::equal(x.grad(), at::full({100}, 1.0 + 1.0 / 1024)));
}

std::vector<std::vector<std::int32_t>> some_rows(std::size_t count, std::int64_t vocab) {
  std::mt19937 random(5);
  std::vector<std::vector<std::int32_t>> rows;
  for (std::size_t i = 0; i < count; ++i)
    rows.push_back(random_tokens(random, 2 + random() % 11, vocab));
  return rows;
}

std::vector<std::vector<float>> logprobs(HeldModel& model,
                                         const std::vector<std::vector<std::int32_t>>& rows) {
  wire::LogprobsArgsT args;
  args.version = 1;
  for (const auto& row : rows) args.sequences.push_back(prompt(row));
  auto value = run_op(model, args_union(std::move(args)));
  EXPECT_TRUE(value) << value.error().to_string();
  std::vector<std::vector<float>> result;
  for (const auto& row : value->AsLogprobsResult()->rows) result.push_back(row->values);
  return result;
}

float farthest(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  float most = 0;
  EXPECT_EQ(a.size(), b.size());
  for (std::size_t r = 0; r < a.size(); ++r) {
    EXPECT_EQ(a[r].size(), b[r].size());
    for (std::size_t i = 0; i < a[r].size(); ++i)
      most = std::max(most, std::abs(a[r][i] - b[r][i]));
  }
  return most;
}

struct Case {
  TrainMode mode;
  ModelConfig config;
};
class Bf16Model : public testing::TestWithParam<Case> {
 protected:
  static ModelLayout layout(WeightType type = kHalf) {
    const TrainMode mode = GetParam().mode;
    return layout_of(GetParam().config, mode, mode == TrainMode::Lora ? 5 : 0, type);
  }
  static void prepare(HeldModel& model) {
    model.shake(0.03);
    model.publish(1);
  }
  // More than one micro-batch with long rows.
  static wire::ForwardBackwardArgsT batch(std::size_t count, std::size_t length) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    wire::ForwardBackwardArgsT args;
    args.loss = LossKind::ImportanceSampling;
    for (std::size_t d = 0; d < count; ++d) {
      auto datum = std::make_unique<wire::DatumT>();
      datum->tokens = random_tokens(random, length - d % 3, GetParam().config.vocab_size);
      datum->target_tokens = random_tokens(random, length - d % 3, GetParam().config.vocab_size);
      for (std::size_t i = 0; i < length - d % 3; ++i) {
        datum->advantages.push_back(normal(random));
        datum->logprobs.push_back(-3.0F);
      }
      args.data.push_back(std::move(datum));
    }
    return args;
  }
  static wire::ForwardBackwardResultT train(HeldModel& model, wire::ForwardBackwardArgsT args,
                                            const std::function<void()>& between = {}) {
    auto value = run_op(model, args_union(std::move(args)), -1, 0, between);
    EXPECT_TRUE(value) << value.error().to_string();
    return *value->AsForwardBackwardResult();
  }
};
ModelConfig untied() {
  ModelConfig config = demo_config();
  config.tied_head = false;
  return config;
}
INSTANTIATE_TEST_SUITE_P(All, Bf16Model,
                         testing::Values(Case{TrainMode::Lora, demo_config()},
                                         Case{TrainMode::Lora, tiny_config(Family::kQwen2)},
                                         Case{TrainMode::Full, demo_config()},
                                         Case{TrainMode::Full, untied()},
                                         Case{TrainMode::Full, tiny_config(Family::kQwen3)}));

// |a - b| / |b|
double relative(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / size);
}

TEST_P(Bf16Model, LogprobsAreNearThoseInFloat32) {
  HeldModel exact(layout(WeightType::kFloat32)), half(layout());
  prepare(exact), prepare(half);
  const auto rows = some_rows(9, GetParam().config.vocab_size);
  const float apart = farthest(logprobs(half, rows), logprobs(exact, rows));
  EXPECT_LT(apart, kLogprobsApart);
  EXPECT_GT(apart, 0.0F);
}

// Numbers that differ in their last bit may round to neighbours: no closer than that.
TEST_P(Bf16Model, DecodingAndTheTrainingForwardAgree) {
  HeldModel model(layout());
  prepare(model);
  const auto rows = some_rows(9, GetParam().config.vocab_size);
  const TrainDecoder decoder(model.state, false);
  std::vector<std::vector<float>> want;
  for (const auto& row : rows) {
    std::vector<std::int64_t> ids(row.begin(), row.end());
    const auto n = static_cast<std::int64_t>(ids.size());
    const at::Tensor tokens = at::from_blob(ids.data(), {1, n}, at::kLong);
    const at::Tensor logp = at::log_softmax(decoder.logits(decoder.hidden(tokens).squeeze(0)), -1);
    want.emplace_back();
    for (std::int64_t i = 0; i + 1 < n; ++i)
      want.back().push_back(logp[i][ids[static_cast<std::size_t>(i) + 1]].item<float>());
  }
  EXPECT_LT(farthest(logprobs(model, rows), want), kPathsApart);
}

TEST_P(Bf16Model, BitsOfARowDoNotDependOnTheBatch) {
  HeldModel model(layout());
  prepare(model);
  const auto rows = some_rows(33, GetParam().config.vocab_size);
  const auto all = logprobs(model, rows);
  for (std::size_t r = 0; r < rows.size(); ++r)
    EXPECT_EQ(logprobs(model, {rows[r]})[0], all[r]) << r;
}

TEST_P(Bf16Model, GeneratedLogprobsAreThoseOfTheLogprobsOp) {
  HeldModel model(layout());
  prepare(model);
  wire::GenerateArgsT args;
  args.version = 1, args.samples_per_prompt = 3, args.max_new_tokens = 7, args.seed = 4;
  auto rows = some_rows(5, GetParam().config.vocab_size);
  for (const auto& row : rows) args.prompts.push_back(prompt(row));
  auto value = run_op(model, args_union(std::move(args)));
  ASSERT_TRUE(value) << value.error().to_string();
  std::size_t r = 0;
  for (const auto& sequence : value->AsGenerateResult()->sequences) {
    std::vector<std::int32_t> whole = rows[r++ / 3];
    whole.insert(whole.end(), sequence->tokens.begin(), sequence->tokens.end());
    const std::vector<float> want = logprobs(model, {whole})[0];
    EXPECT_EQ(sequence->logprobs, std::vector<float>(want.end() - 7, want.end())) << r;
  }
}

TEST_P(Bf16Model, GradientsAreNearThoseInFloat32) {
  HeldModel exact(layout(WeightType::kFloat32)), half(layout());
  prepare(exact), prepare(half);
  const auto want = train(exact, batch(6, 9));
  const auto got = train(half, batch(6, 9));
  EXPECT_NEAR(got.loss_sum, want.loss_sum, kLossApart);
  const double apart = relative(half.gradients.copy(), exact.gradients.copy());
  EXPECT_LT(apart, kGradientsApart);
  EXPECT_GT(apart, 0.0);
}

// Between steps all memory may go and come back.
TEST_P(Bf16Model, SuspendsBetweenMicroBatchesChangeNoBit) {
  HeldModel model(layout()), other(layout());
  prepare(model), prepare(other);
  int suspends = 0;
  const auto suspend = [&] {
    ++suspends;
    const std::vector<float> weights = other.weights.copy();
    const std::vector<Bf16> half = other.half;
    std::fill(other.weights.span().begin(), other.weights.span().end(), std::nanf(""));
    std::fill(other.half.begin(), other.half.end(), Bf16{0x7fc0});
    std::copy(weights.begin(), weights.end(), other.weights.span().begin());
    std::copy(half.begin(), half.end(), other.half.begin());
  };
  const auto want = train(model, batch(40, 30));
  const auto got = train(other, batch(40, 30), suspend);
  EXPECT_GT(suspends, 0);
  EXPECT_EQ(got.loss_sum, want.loss_sum);
  EXPECT_EQ(other.gradients.copy(), model.gradients.copy());
}

TEST_P(Bf16Model, StepsChangeMastersAndPublishingRoundsThem) {
  HeldModel model(layout());
  prepare(model);
  train(model, batch(6, 9));
  const std::vector<float> before = model.weights.copy();
  wire::OptimStepArgsT step;
  step.learning_rate = 1e-6;  // most weights in bfloat16 would not move at all
  ASSERT_TRUE(run_op(model, args_union(step)));
  std::size_t moved = 0;
  for (std::size_t i = 0; i < before.size(); ++i) moved += before[i] != model.weights.span()[i];
  EXPECT_GT(moved, before.size() / 4);
  wire::SaveArgsT save;
  save.target = wire::SaveTarget::Sampler;
  const auto saved = run_op(model, args_union(save), -1, 2);
  ASSERT_TRUE(saved) << saved.error().to_string();
  if (GetParam().mode == TrainMode::Lora) {
    EXPECT_EQ(model.sampler.copy(), model.weights.copy());
    EXPECT_EQ(saved->AsSaveResult()->bytes, model.layout.trainable.bytes());
    return;
  }
  EXPECT_EQ(saved->AsSaveResult()->bytes, model.layout.trainable.bytes() / 2);
  for (std::size_t i = 0; i < model.half.size(); ++i)
    ASSERT_EQ(model.half[i], to_bfloat16(model.weights.span()[i])) << i;
}

// What runs on a CUDA device: products are rounded to bfloat16 there.
TEST_P(Bf16Model, TheAtenFormIsNear) {
  HeldModel model(layout()), aten(layout());
  prepare(model), prepare(aten);
  aten.state.device.math = ModelDevice::Math::kAten;
  const auto rows = some_rows(9, GetParam().config.vocab_size);
  EXPECT_LT(farthest(logprobs(aten, rows), logprobs(model, rows)), kLogprobsApart);
  train(model, batch(6, 9));
  train(aten, batch(6, 9));
  EXPECT_LT(relative(aten.gradients.copy(), model.gradients.copy()), kGradientsApart);
}

TEST(Bf16Layout, HalvesTheBaseAndTheSamplerOfAFullModel) {
  const auto bytes = [](TrainMode mode, std::uint32_t rank, WeightType type) {
    std::map<wire::SegmentKind, std::uint64_t> out;
    for (const SegmentBytes& size : segment_sizes(layout_of(demo_config(), mode, rank, type)))
      out[size.kind] = size.bytes;
    return out;
  };
  auto want = bytes(TrainMode::None, 0, WeightType::kFloat32);
  want[wire::SegmentKind::Base] = (want[wire::SegmentKind::Base] / 2 + 4095) / 4096 * 4096;
  EXPECT_EQ(bytes(TrainMode::None, 0, kHalf), want);
  EXPECT_EQ(bytes(TrainMode::Lora, 8, kHalf), bytes(TrainMode::Lora, 8, WeightType::kFloat32));
  want = bytes(TrainMode::Full, 0, WeightType::kFloat32);
  auto& sampler = want[wire::SegmentKind::SamplerWeights];
  sampler = (sampler / 2 + 4095) / 4096 * 4096;
  EXPECT_EQ(bytes(TrainMode::Full, 0, kHalf), want);
}

TEST(Bf16Files, AreRoundedWhenTheyAreRead) {
  std::string path = testing::TempDir() + "plexrl-bf16-XXXXXX";
  ASSERT_NE(::mkdtemp(path.data()), nullptr);
  const Status made = init_model_dir(path, format_model_config(tiny_config()), "{}", 5);
  ASSERT_TRUE(made.ok()) << made.to_string();
  const auto dir = open_model_dir(path);
  ASSERT_TRUE(dir) << dir.error().to_string();
  const ModelLayout layout = layout_of(tiny_config(), TrainMode::None);
  std::vector<float> weights(layout.full.elements);
  std::vector<Bf16> half(layout.full.elements, Bf16{1});
  EXPECT_TRUE(load_base_weights(*dir, layout.full, weights).ok());
  EXPECT_TRUE(load_base_weights16(*dir, layout.full, half).ok());
  for (std::size_t i = 0; i < half.size(); ++i) ASSERT_EQ(half[i], to_bfloat16(weights[i])) << i;
  std::filesystem::remove_all(path);
}

}  // namespace
}  // namespace plexrl::model
