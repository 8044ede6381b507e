// SPDX-License-Identifier: Apache-2.0
// FakeModelCode: model mathematics that a test can predict, without LibTorch.
//
// A model has kElements weights. forward_backward adds tokens[0] of each datum to every gradient,
// one datum per step; optim_step subtracts learning_rate * gradient; generate writes each new token
// to KV memory and takes its result from there, and runs in batches. Steps wait while `hold` is
// set.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "engine_torch/model_code.h"

namespace plexrl::worker {

class FakeModelCode final : public ModelCode {
 public:
  // Segments need three chunks of 4 KiB, the last of them in part.
  static constexpr std::uint64_t kElements = 2 * 1024 + 100;
  static constexpr float kBaseWeight = 7.0F;

  std::atomic<bool> hold{false};       // ops stand still inside a step
  std::atomic<bool> hold_base{false};  // load_base stands still
  std::atomic<bool> fail_step{false};  // the next step fails with NO_CAPACITY
  // The next step of a batch of several fails, or fails for who joined last.
  std::atomic<bool> fail_batch{false};
  std::atomic<bool> fail_newest{false};
  std::atomic<bool> fail_base{false};  // load_base fails with CORRUPT
  std::atomic<int> wipes{0};
  std::atomic<int> abandoned{0};
  std::atomic<int> steps{0};  // of single ops and of batches
  std::atomic<int> largest_batch{0};

  Result<wire::EngineDescriptionT> describe(wire::TrainMode mode, std::uint32_t rank) override;
  Result<std::shared_ptr<const model::ModelLayout>> layout(wire::TrainMode mode,
                                                           std::uint32_t rank) override;
  std::vector<model::SegmentBytes> segments(const model::ModelLayout& layout) const override;
  Status load_base(std::span<float> weights) override;
  Status load_base16(std::span<model::Bf16> weights) override;
  Status initialise(const model::ModelLayout& layout, std::uint64_t seed,
                    std::span<float> weights) override;
  Result<std::unique_ptr<model::OpRun>> make_run(const model::OpEnv& env,
                                                 const wire::OpArgsUnion& args) override;
  bool writes_committed_state(const wire::OpArgsUnion& args) const override;
  bool needs_whole_state(const wire::OpArgsUnion& args) const override;
  void wait_for_step() const;
  void wipe_activations() override { ++wipes; }
  std::uint64_t activation_bytes() const override { return 4711; }
};

}  // namespace plexrl::worker
