// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/base_model.h"

#include "base/log.h"
#include "engine_torch/activation_arena.h"
#include "engine_torch/arena_math.h"
#include "engine_torch/op_checks.h"

namespace plexrl::worker {
namespace {

const char* mode_name(wire::TrainMode mode) { return wire::EnumNameTrainMode(mode); }

// Device memory is filled through a copy on the host.
template <class FillHost>
Status fill(const model::ModelDevice& device, std::span<float> weights, FillHost&& fill_host) {
  if (device.math == model::ModelDevice::Math::kKernels) return fill_host(weights);
  const Result<bool> done = model::guarded("fill", [&]() -> Result<bool> {
    std::vector<float> host(weights.size());
    PLEXRL_TRY(fill_host(std::span<float>(host)));
    model::from_host(device, host, weights.data());
    return true;
  });
  PLEXRL_TRY(done.status());
  return model::synchronize(device);
}

// An op whose work on the device is done when a step ends: the backend copies and unmaps then.
class DeviceRun final : public model::OpRun {
 public:
  DeviceRun(std::unique_ptr<model::OpRun> run, model::ModelDevice device)
      : run_(std::move(run)), device_(device) {}
  Result<bool> step() override {
    Result<bool> done = run_->step();
    PLEXRL_TRY(model::synchronize(device_));
    return done;
  }
  void abandon() override {
    run_->abandon();
    if (const Status status = model::synchronize(device_); !status.ok())
      PLEXRL_LOG(kError, "an op that was given up: %s", status.text().c_str());
  }
  wire::OpValueUnion take_result() override { return run_->take_result(); }
  [[nodiscard]] std::uint64_t tokens_done() const noexcept override { return run_->tokens_done(); }

 private:
  std::unique_ptr<model::OpRun> run_;
  model::ModelDevice device_;
};

std::unique_ptr<wire::SegmentSizeT> row_of(const model::SegmentBytes& size) {
  auto row = std::make_unique<wire::SegmentSizeT>();
  row->kind = size.kind;
  row->bytes = size.bytes;
  row->committed = size.committed;
  return row;
}

}  // namespace

BaseModel::BaseModel(const std::string& directory, wire::TrainMode mode, model::ModelDevice device,
                     model::WeightType type)
    : dir_(model::open_model_dir(directory)), mode_(mode), device_(device), type_(type) {
  if (!dir_) return;
  if (auto made = model::make_model_layout(dir_->config, wire::TrainMode::None, 0))
    base_layout_ = std::make_shared<const model::ModelLayout>(std::move(*made));
  else
    dir_ = made.error();
}

Result<std::shared_ptr<const model::ModelLayout>> BaseModel::layout(wire::TrainMode mode,
                                                                    std::uint32_t lora_rank) {
  if (!dir_) return dir_.error();
  if ((mode == wire::TrainMode::Full) != (mode_ == wire::TrainMode::Full))
    return error(Code::INVALID_ARGUMENT, "an engine of mode %s has no models of mode %s",
                 mode_name(mode_), mode_name(mode));
  auto& known = layouts_[{mode, lora_rank}];
  if (!known) {
    PLEXRL_ASSIGN(auto made, model::make_model_layout(dir_->config, mode, lora_rank, type_));
    known = std::make_shared<const model::ModelLayout>(std::move(made));
  }
  return known;
}

Result<wire::EngineDescriptionT> BaseModel::describe(wire::TrainMode mode,
                                                     std::uint32_t lora_rank) {
  PLEXRL_ASSIGN(const auto of, layout(mode, lora_rank));
  wire::EngineDescriptionT out;
  for (const model::SegmentBytes& size : segments(*of)) out.segments.push_back(row_of(size));
  out.vocab_size = static_cast<std::uint32_t>(dir_->config.vocab_size);
  out.max_positions = static_cast<std::uint32_t>(dir_->config.max_positions);
  out.parameters = of->full.parameters;
  out.trainable_parameters = of->trainable.parameters;
  out.tokenizer = dir_->tokenizer;
  out.kv_bytes_per_position = model::kv_bytes_per_position(dir_->config);
  return out;
}

std::vector<model::SegmentBytes> BaseModel::segments(const model::ModelLayout& layout) const {
  return model::segment_sizes(layout);
}

Status BaseModel::load_base(std::span<float> weights) {
  return fill(device_, weights, [this](std::span<float> host) {
    return model::load_base_weights(*dir_, base_layout_->full, host);
  });
}

// Two numbers move as the bits of one float32: an arena has an even number of them.
Status BaseModel::load_base16(std::span<model::Bf16> weights) {
  const std::span<float> bits(reinterpret_cast<float*>(weights.data()), weights.size() / 2);
  return fill(device_, bits, [this](std::span<float> host) {
    return model::load_base_weights16(
        *dir_, base_layout_->full, {reinterpret_cast<model::Bf16*>(host.data()), host.size() * 2});
  });
}

// Adapters have no tensor that the standard deviation of the base's is for.
Status BaseModel::initialise(const model::ModelLayout& layout, std::uint64_t seed,
                             std::span<float> weights) {
  return fill(device_, weights, [&](std::span<float> host) {
    model::initialise(layout.trainable, layout.config.layers, seed, 0.0, host);
    return Status();
  });
}

Result<std::unique_ptr<model::OpRun>> BaseModel::make_run(const model::OpEnv& env,
                                                          const wire::OpArgsUnion& args) {
  env.state->device = device_;
  if (device_.cuda < 0) return model::make_op_run(env, args);
  std::unique_ptr<model::OpRun> run;
  const Result<bool> made = model::guarded("op", [&]() -> Result<bool> {
    PLEXRL_ASSIGN(run, model::make_op_run(env, args));
    return true;
  });
  if (!made) return made.error();
  return std::unique_ptr<model::OpRun>(std::make_unique<DeviceRun>(std::move(run), device_));
}

bool BaseModel::writes_committed_state(const wire::OpArgsUnion& args) const {
  return model::writes_committed_state(args);
}

bool BaseModel::needs_whole_state(const wire::OpArgsUnion& args) const {
  return model::needs_whole_state(args);
}

void BaseModel::wipe_activations() { model::ActivationArena::installed()->zero_used(); }

std::uint64_t BaseModel::activation_bytes() const {
  return model::ActivationArena::installed()->stats().used_bytes;
}

}  // namespace plexrl::worker
