// SPDX-License-Identifier: Apache-2.0
// Ops in an activation arena that is almost full: an error, and the model as it was.
#include "engine_torch/activation_arena.h"
#include "held_model.h"

namespace plexrl::model {
namespace {

using wire::TrainMode;

// Takes all of the installed arena but `left` bytes.
class AlmostFull {
 public:
  explicit AlmostFull(std::size_t left) {
    ActivationArena* arena = ActivationArena::installed();
    const ActivationArena::Stats stats = arena->stats();
    block_ = arena->allocate(stats.capacity_bytes - stats.used_bytes - left);
    EXPECT_NE(block_, nullptr);
  }
  ~AlmostFull() { ActivationArena::installed()->release(block_); }
  AlmostFull(const AlmostFull&) = delete;
  AlmostFull& operator=(const AlmostFull&) = delete;

 private:
  void* block_;
};

wire::ForwardBackwardArgsT batch() {
  std::mt19937 random(2);
  wire::ForwardBackwardArgsT args;
  for (int i = 0; i < 100; ++i) {
    auto d = std::make_unique<wire::DatumT>();
    d->tokens = random_tokens(random, 13, 32);
    d->target_tokens = random_tokens(random, 13, 32);
    d->weights.assign(13, 1.0F);
    args.data.push_back(std::move(d));
  }
  return args;
}

// From nothing to enough: it fails in the snapshot, the forward pass, the backward pass, the second
// micro-batch, and at last not at all.
TEST(Capacity, TrainingFailsCleanlyAtEveryDepth) {
  int failed = 0;
  bool done = false;
  for (std::size_t left = 4096; !done && left < (128U << 20);
       left = left * 3 / 2 / 4096 * 4096 + 4096) {
    HeldModel model(layout_of(demo_config(), TrainMode::Full));
    model.gradients.span()[7] = 0.5F;
    model.state.gradients_pending = true;
    const std::vector<float> before = model.gradients.copy();
    const AlmostFull full(left);
    const std::size_t used = ActivationArena::installed()->stats().used_bytes;
    const auto result = run_op(model, args_union(batch()));
    EXPECT_EQ(ActivationArena::installed()->stats().used_bytes, used);
    done = result.has_value();
    if (done) break;
    ++failed;
    EXPECT_EQ(result.error().code(), Code::NO_CAPACITY) << result.error().to_string();
    EXPECT_EQ(model.gradients.copy(), before) << left;
  }
  EXPECT_TRUE(done);
  EXPECT_GT(failed, 8);
}

TEST(Capacity, SamplingFailsCleanly) {
  HeldModel model(layout_of(demo_config(), TrainMode::None));
  const AlmostFull full(4096);
  wire::GenerateArgsT generate;
  generate.prompts.push_back(prompt({1, 2, 3}));
  generate.max_new_tokens = 4;
  const auto sampled = run_op(model, args_union(std::move(generate)));
  EXPECT_EQ(sampled.error().code(), Code::NO_CAPACITY);
  wire::LogprobsArgsT logprobs;
  logprobs.sequences.push_back(prompt({1, 2, 3}));
  EXPECT_EQ(run_op(model, args_union(std::move(logprobs))).error().code(), Code::NO_CAPACITY);
}

}  // namespace
}  // namespace plexrl::model
