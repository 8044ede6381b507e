// SPDX-License-Identifier: Apache-2.0
// BaseModel: ModelCode over one model directory and LibTorch, on the CPU or a CUDA device. A
// directory that cannot be used is not the end of the engine: describe and layout answer with the
// reason.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "engine_torch/model_code.h"
#include "engine_torch/model_dir.h"

namespace plexrl::worker {

class BaseModel final : public ModelCode {
 public:
  // The activation arena must be installed. `mode`: what the engine serves, Lora or Full. `device`:
  // where the backend that the models are mapped by has its memory. `type`: of the weights that are
  // multiplied by.
  BaseModel(const std::string& directory, wire::TrainMode mode, model::ModelDevice device,
            model::WeightType type = model::WeightType::kFloat32);

  Result<wire::EngineDescriptionT> describe(wire::TrainMode mode, std::uint32_t lora_rank) override;
  Result<std::shared_ptr<const model::ModelLayout>> layout(wire::TrainMode mode,
                                                           std::uint32_t lora_rank) override;
  std::vector<model::SegmentBytes> segments(const model::ModelLayout& layout) const override;
  Status load_base(std::span<float> weights) override;
  Status load_base16(std::span<model::Bf16> weights) override;
  Status initialise(const model::ModelLayout& layout, std::uint64_t seed,
                    std::span<float> weights) override;
  Result<std::unique_ptr<model::OpRun>> make_run(const model::OpEnv& env,
                                                 const wire::OpArgsUnion& args) override;
  bool writes_committed_state(const wire::OpArgsUnion& args) const override;
  bool needs_whole_state(const wire::OpArgsUnion& args) const override;
  void wipe_activations() override;
  std::uint64_t activation_bytes() const override;

 private:
  Result<model::ModelDir> dir_;
  wire::TrainMode mode_;
  model::ModelDevice device_;
  model::WeightType type_;
  // Protocol thread. load_base only reads the base's layout, made by the constructor.
  std::map<std::pair<wire::TrainMode, std::uint32_t>, std::shared_ptr<const model::ModelLayout>>
      layouts_;
  std::shared_ptr<const model::ModelLayout> base_layout_;
};

}  // namespace plexrl::worker
