// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/decode_bench.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "engine_torch/model_dir.h"
#include "held_model.h"

namespace plexrl::model {
namespace {

// A directory with a model in it.
class DecodeBench : public testing::Test {
 protected:
  DecodeBench() {
    std::string name = testing::TempDir() + "decode-bench-XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  ~DecodeBench() override { std::filesystem::remove_all(directory_); }
  DecodeBenchOptions model_of(ModelConfig config) {
    const Status made = init_model_dir(directory_, format_model_config(config), "{}", 1);
    EXPECT_TRUE(made.ok()) << made.to_string();
    DecodeBenchOptions options;
    options.base_dir = directory_;
    options.time = {};
    return options;
  }
  std::string directory_;
};

TEST_F(DecodeBench, MeasuresWhatTheRowsRead) {
  for (const bool tied : {true, false}) {
    ModelConfig config = demo_config();
    config.max_positions = 256;
    config.tied_head = tied;
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directory(directory_);
    DecodeBenchOptions options = model_of(config);
    options.rows = {1, 4};
    options.adapters = {0, 2, 4, 3};
    const auto speeds = bench_decode(options);
    ASSERT_TRUE(speeds) << speeds.error().to_string();
    ASSERT_EQ(speeds->size(), 4U);  // 1 row without adapters; 4 rows with none, two, four
    const ModelLayout base = layout_of(config, wire::TrainMode::None);
    const ModelLayout adapter = layout_of(config, wire::TrainMode::Lora, 8);
    const std::uint64_t weights =
        base.full.bytes() - (tied ? 0 : base.full.slots.at(1).offset * sizeof(float));
    // A prompt of 32 tokens and what the rounds have drawn.
    const std::uint64_t positions = 32 + speeds->front().rounds * 3;
    for (const DecodeSpeed& speed : *speeds) {
      EXPECT_EQ(speed.rounds, 5U);
      EXPECT_NEAR(static_cast<double>(speed.bytes),
                  static_cast<double>(weights + speed.adapters * adapter.trainable.bytes() +
                                      speed.rows * positions * kv_bytes_per_position(config)),
                  512.0);
      EXPECT_GT(speed.tokens_per_s, 0);
      EXPECT_GT(speed.roofline_tokens_per_s, 0);
      EXPECT_GT(speed.roofline_share, 0);
    }
    EXPECT_EQ((*speeds)[3].rows, 4U);
    EXPECT_EQ((*speeds)[3].adapters, 4U);
  }
}

TEST_F(DecodeBench, HalvesTheWeightsInBfloat16) {
  ModelConfig config = demo_config();
  config.max_positions = 256;
  DecodeBenchOptions options = model_of(config);
  options.rows = {1};
  options.adapters = {0};
  const auto full = bench_decode(options);
  options.type = WeightType::kBFloat16;
  const auto half = bench_decode(options);
  ASSERT_TRUE(full && half);
  const ModelLayout base = layout_of(config, wire::TrainMode::None);
  EXPECT_EQ(full->front().bytes - half->front().bytes,
            base.full.bytes() - base.full.bytes_as(WeightType::kBFloat16));
}

TEST_F(DecodeBench, SaysWhatIsWrong) {
  DecodeBenchOptions options = model_of(demo_config());
  EXPECT_EQ(bench_decode(options).error().code(), Code::UNSUPPORTED);  // 64 positions
  options.base_dir += "/missing";
  EXPECT_FALSE(bench_decode(options));
}

}  // namespace
}  // namespace plexrl::model
