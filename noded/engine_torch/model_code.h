// SPDX-License-Identifier: Apache-2.0
// ModelCode: what the engine's server needs of the model mathematics. Real: base_model (the files
// of one base, LibTorch); tests use a fake, so that memory, commits and yields are tested without
// it.
//
// Threads: describe, layout, segments, make_run's checks and activation_bytes from the protocol
// thread; load_base and initialise from the memory thread; make_run and wipe_activations from the
// compute thread. They may run at the same time.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine_generated.h"
#include "engine_torch/op_run.h"

namespace plexrl::worker {

class ModelCode {
 public:
  virtual ~ModelCode() = default;

  // The error that the base had when it was opened comes from these two.
  [[nodiscard]] virtual Result<wire::EngineDescriptionT> describe(wire::TrainMode mode,
                                                                  std::uint32_t lora_rank) = 0;
  [[nodiscard]] virtual Result<std::shared_ptr<const model::ModelLayout>> layout(
      wire::TrainMode mode, std::uint32_t lora_rank) = 0;
  [[nodiscard]] virtual std::vector<model::SegmentBytes> segments(
      const model::ModelLayout& layout) const = 0;

  // Fills a Weights segment (float32) or a Base segment (of the layout's type) from the base's
  // files.
  [[nodiscard]] virtual Status load_base(std::span<float> weights) = 0;
  [[nodiscard]] virtual Status load_base16(std::span<model::Bf16> weights) = 0;
  // Fills the weights of a new adapter by seed.
  [[nodiscard]] virtual Status initialise(const model::ModelLayout& layout, std::uint64_t seed,
                                          std::span<float> weights) = 0;

  [[nodiscard]] virtual Result<std::unique_ptr<model::OpRun>> make_run(
      const model::OpEnv& env, const wire::OpArgsUnion& args) = 0;
  [[nodiscard]] virtual bool writes_committed_state(const wire::OpArgsUnion& args) const = 0;
  // False: the op may run while moments, and sampler weights without a version, are not there yet.
  [[nodiscard]] virtual bool needs_whole_state(const wire::OpArgsUnion& args) const = 0;

  // Zeroes activation memory that an earlier op used and gave back.
  virtual void wipe_activations() = 0;
  [[nodiscard]] virtual std::uint64_t activation_bytes() const = 0;  // in use now
};

}  // namespace plexrl::worker
