// SPDX-License-Identifier: Apache-2.0
// The ATen form of every op, which is what runs on a CUDA device, against our own kernels: both on
// the CPU, in two models that begin equal.
#include <ATen/Context.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>

#include "base/unique_fd.h"
#include "engine_torch/arena_math.h"
#include "held_model.h"

namespace plexrl::model {
namespace {

using wire::LossKind;
using wire::TrainMode;

constexpr float kClose = 2e-5F;

struct Shape {
  TrainMode mode;
  bool tied;
  ModelConfig config;
};

class AtenDevice : public testing::TestWithParam<Shape> {
 protected:
  AtenDevice() {
    aten_.state.device.math = ModelDevice::Math::kAten;
    for (HeldModel* model : both_) {
      model->shake(0.05);
      model->publish(3);
    }
  }
  static ModelLayout layout() {
    ModelConfig config = GetParam().config;
    config.tied_head = GetParam().tied;
    return layout_of(config, GetParam().mode, GetParam().mode == TrainMode::Lora ? 3 : 0);
  }
  template <class Result, class Args>
  Result run(HeldModel& model, Args args, int fd = -1, std::uint64_t version_out = 0) {
    auto value = run_op(model, args_union(std::move(args)), fd, version_out);
    EXPECT_TRUE(value) << value.error().to_string();
    const bool expected = value && value->type == wire::OpValueUnionTraits<Result>::enum_value;
    auto* const result = expected ? static_cast<Result*>(value->value) : nullptr;
    EXPECT_NE(result, nullptr);
    return result == nullptr ? Result() : std::move(*result);
  }
  wire::ForwardBackwardArgsT batch(LossKind loss, unsigned seed) const {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    wire::ForwardBackwardArgsT args;
    args.loss = loss;
    for (const std::size_t length : {5, 9, 3}) {
      auto datum = std::make_unique<wire::DatumT>();
      datum->tokens = random_tokens(random, length, kernels_.layout.config.vocab_size);
      datum->target_tokens = random_tokens(random, length, kernels_.layout.config.vocab_size);
      for (std::size_t i = 0; i < length; ++i) {
        datum->weights.push_back(normal(random));
        datum->advantages.push_back(normal(random));
        datum->logprobs.push_back(-3.0F + 0.5F * normal(random));
      }
      args.data.push_back(std::move(datum));
    }
    return args;
  }
  static void expect_close(std::span<const float> got, std::span<const float> want,
                           const char* what) {
    ASSERT_EQ(got.size(), want.size()) << what;
    float largest = 1.0F;
    float difference = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      largest = std::max(largest, std::abs(want[i]));
      difference = std::max(difference, std::abs(got[i] - want[i]));
    }
    EXPECT_LT(difference, kClose * largest) << what;
  }

  HeldModel kernels_{layout()};
  HeldModel aten_{layout()};
  std::array<HeldModel*, 2> both_ = {&kernels_, &aten_};
};

TEST_P(AtenDevice, LogprobsAgree) {
  for (const std::uint64_t version : {0U, 3U}) {
    if (version == 0 && GetParam().mode == TrainMode::Full) continue;
    std::mt19937 random(11);
    wire::LogprobsArgsT args;
    args.version = version;
    for (int row = 0; row < 40; ++row)  // more than one chunk of tokens
      args.sequences.push_back(
          prompt(random_tokens(random, 1 + random() % 20, kernels_.layout.config.vocab_size)));
    const auto want = run<wire::LogprobsResultT>(kernels_, wire::LogprobsArgsT(args));
    const auto got = run<wire::LogprobsResultT>(aten_, std::move(args));
    ASSERT_EQ(got.rows.size(), want.rows.size());
    for (std::size_t r = 0; r < want.rows.size(); ++r)
      expect_close(got.rows[r]->values, want.rows[r]->values, "row");
  }
}

TEST_P(AtenDevice, GenerateDrawsTheSameTokens) {
  std::mt19937 random(7);
  wire::GenerateArgsT args;
  args.version = 3;
  for (int p = 0; p < 5; ++p)
    args.prompts.push_back(
        prompt(random_tokens(random, 1 + random() % 9, kernels_.layout.config.vocab_size)));
  args.samples_per_prompt = 3;
  args.max_new_tokens = 10;
  args.seed = 42;
  const auto want = run<wire::GenerateResultT>(kernels_, wire::GenerateArgsT(args));
  const auto got = run<wire::GenerateResultT>(aten_, std::move(args));
  ASSERT_EQ(got.sequences.size(), 15U);
  for (std::size_t r = 0; r < want.sequences.size(); ++r) {
    EXPECT_EQ(got.sequences[r]->tokens, want.sequences[r]->tokens) << r;
    expect_close(got.sequences[r]->logprobs, want.sequences[r]->logprobs, "sequence");
  }
}

TEST_P(AtenDevice, TrainingAgreesStepByStep) {
  unsigned seed = 1;
  for (const LossKind loss :
       {LossKind::CrossEntropy, LossKind::ImportanceSampling, LossKind::Ppo, LossKind::Dro}) {
    double norms[2] = {};
    std::vector<float> gradients[2];
    for (std::size_t i = 0; i < 2; ++i) {
      const auto first = run<wire::ForwardBackwardResultT>(*both_[i], batch(loss, seed));
      EXPECT_GT(first.token_count, 0U);
      (void)run<wire::ForwardBackwardResultT>(*both_[i], batch(loss, seed + 1));  // accumulates
      gradients[i] = both_[i]->gradients.copy();
      wire::OptimStepArgsT step;
      step.learning_rate = 1e-3;
      step.weight_decay = 0.1;
      step.grad_clip_norm = 1.0;
      norms[i] = run<wire::OptimStepResultT>(*both_[i], std::move(step)).grad_norm;
    }
    expect_close(gradients[1], gradients[0], "gradients");
    EXPECT_NEAR(norms[1], norms[0], 1e-4 * norms[0]);
    expect_close(aten_.weights.span(), kernels_.weights.span(), "weights");
    expect_close(aten_.m.span(), kernels_.m.span(), "m");
    expect_close(aten_.v.span(), kernels_.v.span(), "v");
    for (const float g : aten_.gradients.span()) ASSERT_EQ(g, 0.0F);
    seed += 2;
  }
  EXPECT_EQ(aten_.state.step, 4U);
}

TEST_P(AtenDevice, AFailureKeepsEarlierGradients) {
  (void)run<wire::ForwardBackwardResultT>(aten_, batch(LossKind::CrossEntropy, 1));
  const std::vector<float> before = aten_.gradients.copy();
  auto bad = batch(LossKind::ImportanceSampling, 2);
  bad.data[2]->logprobs[0] = -1e38F;  // its ratio is not finite
  const auto failed = run_op(aten_, args_union(std::move(bad)));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(aten_.gradients.copy(), before);
}

TEST_P(AtenDevice, FilesAndPublishedVersionsAreThoseOfTheKernels) {
  (void)run<wire::ForwardBackwardResultT>(aten_, batch(LossKind::CrossEntropy, 1));
  (void)run<wire::OptimStepResultT>(aten_, wire::OptimStepArgsT());
  const UniqueFd file(::memfd_create("test", MFD_CLOEXEC));
  wire::SaveArgsT save;
  save.target = wire::SaveTarget::ClientFd;
  const auto saved = run<wire::SaveResultT>(aten_, wire::SaveArgsT(save), file.get());
  wire::LoadArgsT load;
  load.target = wire::SaveTarget::ClientFd;
  load.with_optimizer = true;
  const auto loaded = run<wire::LoadResultT>(kernels_, wire::LoadArgsT(load), file.get());
  EXPECT_EQ(loaded.sha256, saved.sha256);
  EXPECT_EQ(kernels_.weights.copy(), aten_.weights.copy());
  EXPECT_EQ(kernels_.v.copy(), aten_.v.copy());
  (void)run<wire::ForwardBackwardResultT>(aten_, batch(LossKind::CrossEntropy, 5));
  (void)run<wire::OptimStepResultT>(aten_, wire::OptimStepArgsT());
  (void)run<wire::ForwardBackwardResultT>(aten_, batch(LossKind::CrossEntropy, 6));
  EXPECT_EQ(run<wire::LoadResultT>(aten_, std::move(load), file.get()).sha256, saved.sha256);
  EXPECT_EQ(aten_.weights.copy(), kernels_.weights.copy());
  EXPECT_EQ(aten_.state.step, 1U);
  EXPECT_FALSE(aten_.state.gradients_pending);
  for (const float g : aten_.gradients.span()) ASSERT_EQ(g, 0.0F);
  save.target = wire::SaveTarget::Sampler;
  EXPECT_EQ(run<wire::SaveResultT>(aten_, std::move(save), -1, 9).version, 9U);
  EXPECT_EQ(aten_.sampler.copy(), aten_.weights.copy());
}

INSTANTIATE_TEST_SUITE_P(All, AtenDevice,
                         testing::Values(Shape{TrainMode::Full, false, tiny_config()},
                                         Shape{TrainMode::Full, true, demo_config()},
                                         Shape{TrainMode::Full, false, tiny_config(Family::kQwen2)},
                                         Shape{TrainMode::Full, true, tiny_config(Family::kQwen3)},
                                         Shape{TrainMode::Lora, true, tiny_config(Family::kQwen2)},
                                         Shape{TrainMode::Lora, false, tiny_config(Family::kQwen3)},
                                         Shape{TrainMode::Lora, false, tiny_config()},
                                         Shape{TrainMode::Lora, true, demo_config()}));

TEST(ModelDeviceText, IsCpuOrCudaWithANumber) {
  EXPECT_EQ(open_model_device("cpu")->cuda, -1);
  for (const char* wrong : {"", "gpu", "cuda", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda:999"})
    EXPECT_EQ(open_model_device(wrong).error().code(), Code::INVALID_ARGUMENT) << wrong;
  const auto device = open_model_device("cuda:0");
  if (at::globalContext().hasCUDA()) {
    EXPECT_EQ(device->cuda, 0);
    return;
  }
  EXPECT_EQ(device.error().code(), Code::UNSUPPORTED);
  EXPECT_NE(device.error().text().find("--with-libtorch"), std::string::npos);
}

}  // namespace
}  // namespace plexrl::model
