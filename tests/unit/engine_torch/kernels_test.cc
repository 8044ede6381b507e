// SPDX-License-Identifier: Apache-2.0
// Own kernels against their ATen forms, and row exactness.
#include "engine_torch/kernels.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "engine_torch/decoder.h"
#include "engine_torch/row_gemm.h"

namespace plexrl::model {
namespace {

float largest(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<float>();
}

struct Shape {
  std::int64_t rows, in, out;
};

class RowGemm : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, RowGemm,
                         testing::Values(Shape{1, 1, 1}, Shape{5, 7, 3}, Shape{33, 128, 32},
                                         Shape{130, 384, 128}, Shape{64, 24, 18},
                                         Shape{17, 16, 128}, Shape{2, 40, 50}, Shape{3, 33, 17},
                                         Shape{6, 48, 31}, Shape{131, 20, 33}, Shape{3, 1100, 25}));

TEST_P(RowGemm, AgreesWithAtenInDouble) {
  const auto [rows, in, out] = GetParam();
  const at::Tensor x = at::randn({rows, in});
  const at::Tensor w = at::randn({out, in});
  const at::Tensor want = at::mm(x.to(at::kDouble), w.to(at::kDouble).t()).to(at::kFloat);
  for (const RowTiles tiles : {RowTiles::kWide, RowTiles::kNarrow}) {
    at::Tensor y = at::full({rows, out}, 3.0);
    row_gemm(x.data_ptr<float>(), w.data_ptr<float>(), y.data_ptr<float>(), rows, in, out, tiles);
    EXPECT_LT(largest(y, want), 1e-5F * std::sqrt(static_cast<float>(in)));
    row_gemm_add(x.data_ptr<float>(), w.data_ptr<float>(), y.data_ptr<float>(), rows, in, out, 0.5F,
                 tiles);
    EXPECT_LT(largest(y, want * 1.5), 2e-5F * std::sqrt(static_cast<float>(in)));
  }
}

TEST_P(RowGemm, BitsDoNotDependOnTheTiles) {
  const auto [rows, in, out] = GetParam();
  const at::Tensor x = at::randn({rows, in});
  const at::Tensor w = at::randn({out, in});
  at::Tensor y[2] = {at::ones({rows, out}), at::ones({rows, out})};
  for (const RowTiles tiles : {RowTiles::kWide, RowTiles::kNarrow})
    row_gemm_add(x.data_ptr<float>(), w.data_ptr<float>(),
                 y[tiles == RowTiles::kWide ? 0 : 1].data_ptr<float>(), rows, in, out, 0.3F, tiles);
  EXPECT_TRUE(at::equal(y[0], y[1]));
}

TEST_P(RowGemm, BitsOfARowDoNotDependOnTheOthers) {
  const auto [rows, in, out] = GetParam();
  const at::Tensor x = at::randn({rows, in});
  const at::Tensor w = at::randn({out, in});
  at::Tensor all = at::empty({rows, out});
  row_gemm(x.data_ptr<float>(), w.data_ptr<float>(), all.data_ptr<float>(), rows, in, out);
  at::Tensor sum = at::ones({rows, out});
  row_gemm_add(x.data_ptr<float>(), w.data_ptr<float>(), sum.data_ptr<float>(), rows, in, out,
               0.3F);
  at::Tensor one = at::empty({1, out});
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* const row = x.data_ptr<float>() + r * in;
    row_gemm(row, w.data_ptr<float>(), one.data_ptr<float>(), 1, in, out);
    ASSERT_TRUE(at::equal(one, all.narrow(0, r, 1))) << r;
    one.fill_(1.0);
    row_gemm_add(row, w.data_ptr<float>(), one.data_ptr<float>(), 1, in, out, 0.3F);
    ASSERT_TRUE(at::equal(one, sum.narrow(0, r, 1))) << r;
  }
}

TEST(Kernels, RmsNorm) {
  for (const std::int64_t size : {24, 128, 130}) {
    const at::Tensor x = at::randn({9, size}) * 3;
    const at::Tensor w = at::randn({size});
    at::Tensor y = at::empty_like(x);
    rms_norm(x.data_ptr<float>(), w.data_ptr<float>(), y.data_ptr<float>(), 9, size, 1e-5F);
    const at::Tensor want = x * at::rsqrt(x.square().mean(-1, true) + 1e-5) * w;
    EXPECT_LT(largest(y, want), 3e-6F);
  }
}

TEST(Kernels, SiluMultiply) {
  const at::Tensor gate = at::randn({10007}) * 8;
  const at::Tensor up = at::randn({10007});
  at::Tensor y = gate.clone();
  silu_multiply(y.data_ptr<float>(), up.data_ptr<float>(), y.numel());
  EXPECT_LT(largest(y, at::silu(gate) * up), 1e-5F);
}

TEST(Kernels, LogSumExpAndItsExtremes) {
  for (const std::int64_t count : {1, 19, 32, 50021}) {
    const at::Tensor x = at::randn({count}) * 10;
    EXPECT_NEAR(log_sum_exp(x.data_ptr<float>(), count),
                at::logsumexp(x.to(at::kDouble), 0).item<double>(), 1e-5);
  }
  const float far[] = {-1000.0F, 1000.0F, 0.0F};
  EXPECT_FLOAT_EQ(log_sum_exp(far, 3), 1000.0F);
}

TEST(Kernels, EntropyAndItsExtremes) {
  for (const std::int64_t count : {1, 19, 32, 4096, 50021})
    for (const double scale : {0.01, 1.0, 30.0}) {
      const at::Tensor x = at::randn({count}) * scale + 7;
      const LogSum got = log_sum_and_entropy(x.data_ptr<float>(), count);
      const at::Tensor logp = at::log_softmax(x.to(at::kDouble), 0);
      const double want = -(logp.exp() * logp).sum().item<double>();
      EXPECT_NEAR(got.entropy, want, 2e-6 * want + 2e-7) << count << " " << scale;
      EXPECT_EQ(got.log_sum, log_sum_exp(x.data_ptr<float>(), count));
    }
  const float far[] = {-INFINITY, 1000.0F, 0.0F};
  EXPECT_NEAR(log_sum_and_entropy(far, 3).entropy, 0.0, 1e-30);
  const float even[] = {-1000.0F, 5.0F, 5.0F};
  EXPECT_NEAR(log_sum_and_entropy(even, 3).entropy, std::log(2.0), 1e-7);
}

TEST(Kernels, ExpWeightsAreProbabilitiesUpToTheirSum) {
  const at::Tensor x = at::randn({101}) * 5;
  at::Tensor p = at::empty_like(x);
  exp_weights(x.data_ptr<float>(), 1.0F / 0.7F, p.data_ptr<float>(), 101);
  EXPECT_LT(largest(p / p.sum(), at::softmax(x / 0.7, 0)), 1e-6F);
}

TEST(Kernels, LogSumSlopeIsTheDerivative) {
  at::Tensor x = at::randn({37});
  x.set_requires_grad(true);
  (at::logsumexp(x, 0) * 1.7).backward();
  at::Tensor y = x.detach().clone();
  log_sum_slope(y.data_ptr<float>(), 37, log_sum_exp(y.data_ptr<float>(), 37), -1.7F);
  EXPECT_LT(largest(y, x.grad()), 1e-6F);
}

// Own decode attention against ATen, with grouped query heads and a strided cache.
TEST(Kernels, AttentionAgreesWithAten) {
  const AttentionShape shape{6, 2, 20, 40};
  const std::int64_t length = 29;
  const at::Tensor q = at::randn({6, 20});
  const at::Tensor k = at::randn({2, 40, 20});
  const at::Tensor v = at::randn({2, 40, 20});
  at::Tensor out = at::empty({6, 20});
  std::vector<float> scores(length);
  attend(shape, q.data_ptr<float>(), k.data_ptr<float>(), v.data_ptr<float>(), length,
         scores.data(), out.data_ptr<float>());
  const at::Tensor keys = k.narrow(1, 0, length).repeat_interleave(3, 0);
  const at::Tensor values = v.narrow(1, 0, length).repeat_interleave(3, 0);
  const at::Tensor p = at::softmax(at::bmm(keys, q.unsqueeze(2)).squeeze(2) / std::sqrt(20.0), -1);
  EXPECT_LT(largest(out, at::bmm(p.unsqueeze(1), values).squeeze(1)), 1e-6F);
}

TEST(Kernels, RotationIsHalfSplitAndKeepsLengths) {
  ModelConfig config;
  config.head_dim = 8;
  config.rope_theta = 10000;
  std::vector<float> cosine, sine;
  rope_tables(config, 11, &cosine, &sine);
  const at::Tensor x = at::randn({3, 8});
  at::Tensor y = x.clone();
  rotate(y.data_ptr<float>(), cosine.data() + 10 * 4, sine.data() + 10 * 4, 3, 8);
  EXPECT_LT(largest(y.norm(2, 1), x.norm(2, 1)), 1e-5F);
  const double angle = 10.0 * std::pow(10000.0, -2.0 / 8);  // pair 1 of position 10
  const double a = x[0][1].item<double>();
  const double b = x[0][5].item<double>();
  EXPECT_NEAR(y[0][1].item<double>(), a * std::cos(angle) - b * std::sin(angle), 1e-5);
  EXPECT_NEAR(y[0][5].item<double>(), b * std::cos(angle) + a * std::sin(angle), 1e-5);
}

// By the wavelengths of the paper's formula: short ones are kept, long ones stretched.
TEST(Kernels, RotationIsStretchedForLongContexts) {
  ModelConfig plain;
  plain.head_dim = 64;
  plain.rope_theta = 500000;
  ModelConfig linear = plain;
  linear.rope_scaling = {RopeScaling::Kind::kLinear, 4.0, 1.0, 4.0, 0};
  ModelConfig llama3 = plain;
  llama3.rope_scaling = {RopeScaling::Kind::kLlama3, 8.0, 1.0, 4.0, 8192};
  const auto angle_of = [](const ModelConfig& config, std::int64_t pair) {
    std::vector<float> cosine, sine;
    rope_tables(config, 2, &cosine, &sine);
    const auto at = static_cast<std::size_t>(config.head_dim / 2 + pair);  // of position 1
    return std::atan2(static_cast<double>(sine[at]), static_cast<double>(cosine[at]));
  };
  std::set<int> seen;
  for (std::int64_t pair = 0; pair < 32; ++pair) {
    const double plain_angle = std::pow(500000.0, -static_cast<double>(pair) / 32.0);
    EXPECT_NEAR(angle_of(plain, pair), plain_angle, 1e-6);
    EXPECT_NEAR(angle_of(linear, pair), plain_angle / 4, 1e-6);
    const double wavelength = 2 * std::acos(-1.0) / plain_angle;
    const int kind = wavelength < 8192.0 / 4 ? 0 : wavelength > 8192.0 ? 2 : 1;
    const double smooth = (8192.0 / wavelength - 1) / 3;
    const double want[] = {plain_angle, (1 - smooth) * plain_angle / 8 + smooth * plain_angle,
                           plain_angle / 8};
    EXPECT_NEAR(angle_of(llama3, pair) / want[kind], 1.0, 1e-5) << pair;
    seen.insert(kind);
  }
  EXPECT_EQ(seen.size(), 3U);
}

TEST(Kernels, BiasIsAddedToEachRow) {
  at::Tensor x = at::randn({5, 37});
  const at::Tensor bias = at::randn({37});
  const at::Tensor want = x + bias;
  add_bias(x.data_ptr<float>(), bias.data_ptr<float>(), 5, 37);
  EXPECT_TRUE(x.equal(want));
}

TEST(Kernels, SumOfSquaresIsExactEnoughAndSeesNaN) {
  at::Tensor x = at::randn({100003});
  const std::span<float> span(x.data_ptr<float>(), 100003);
  EXPECT_NEAR(sum_of_squares(span) / x.to(at::kDouble).square().sum().item<double>(), 1.0, 1e-12);
  span[77777] = std::nanf("");
  EXPECT_FALSE(std::isfinite(sum_of_squares(span)));
}

// The formula of torch.optim.AdamW, single tensor, in ATen operators.
TEST(Kernels, AdamWAgreesWithTorchsFormula) {
  at::Tensor w = at::randn({5003}), m = at::zeros({5003}), v = at::zeros({5003});
  at::Tensor w2 = w.clone(), m2 = m.clone(), v2 = v.clone();
  const double lr = 3e-3, b1 = 0.9, b2 = 0.95, eps = 1e-8, decay = 0.1, scale = 0.25;
  for (std::uint64_t step = 1; step <= 5; ++step) {
    const at::Tensor g = at::randn({5003});
    const auto span = [](at::Tensor& t) { return std::span<float>(t.data_ptr<float>(), 5003); };
    at::Tensor copy = g.clone();
    adamw({lr, b1, b2, eps, decay, scale, step}, span(w), span(copy), span(m), span(v));
    const at::Tensor scaled = g * scale;
    w2.mul_(1 - lr * decay);
    m2.mul_(b1).add_(scaled, 1 - b1);
    v2.mul_(b2).addcmul_(scaled, scaled, 1 - b2);
    const double c1 = 1 - std::pow(b1, step), c2 = 1 - std::pow(b2, step);
    const at::Tensor denominator = (v2.sqrt() / std::sqrt(c2)).add_(eps);
    w2.addcdiv_(m2, denominator, -lr / c1);
  }
  EXPECT_LT(largest(w, w2), 2e-6F);  // weights of up to 4: a few roundings
  EXPECT_LT(largest(m, m2), 1e-7F);
  EXPECT_LT(largest(v, v2), 1e-7F);
}

}  // namespace
}  // namespace plexrl::model
