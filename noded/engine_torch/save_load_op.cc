// SPDX-License-Identifier: Apache-2.0
// save (publish to the sampler, or a file) and load: one step each.
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <vector>

#include "engine_torch/arena_math.h"
#include "engine_torch/checkpoint.h"
#include "engine_torch/op_checks.h"
#include "engine_torch/op_factories.h"

namespace plexrl::model {
namespace {

using wire::SaveTarget;

// The model as files see it: itself where its memory is the host's, else a copy on the host.
class HostState {
 public:
  HostState(ModelState& model, bool with_contents) : model_(model) {
    if (model.device.math == ModelDevice::Math::kKernels) return;
    const auto copy = [&](std::span<float> arena) {
      return with_contents ? to_host(model.device, arena) : std::vector<float>(arena.size());
    };
    weights_ = copy(model.memory.weights);
    adam_m_ = copy(model.memory.adam_m);
    adam_v_ = copy(model.memory.adam_v);
    copy_ = model;
    copy_->device = ModelDevice{};
    copy_->memory.weights = weights_;
    copy_->memory.adam_m = adam_m_;
    copy_->memory.adam_v = adam_v_;
    copy_->memory.gradients = {};
  }
  [[nodiscard]] ModelState& state() { return copy_ ? *copy_ : model_; }

  // After a load: what was read becomes the model's, without gradients.
  void write_back() {
    if (!copy_) return;
    from_host(model_.device, weights_, model_.memory.weights.data());
    from_host(model_.device, adam_m_, model_.memory.adam_m.data());
    from_host(model_.device, adam_v_, model_.memory.adam_v.data());
    fill_zero(model_.device, model_.memory.gradients);
    model_.gradients_pending = copy_->gradients_pending;
    model_.step = copy_->step;
  }

 private:
  ModelState& model_;
  std::vector<float> weights_, adam_m_, adam_v_;
  std::optional<ModelState> copy_;
};

class SaveOp final : public OpRun {
 public:
  SaveOp(const OpEnv& env, const wire::SaveArgsT& args) : env_(env), args_(args) {}

  Result<bool> step() override {
    return guarded("save", [this]() -> Result<bool> {
      PLEXRL_TRY(args_.target == SaveTarget::Sampler ? publish() : write());
      return true;
    });
  }
  wire::OpValueUnion take_result() override {
    wire::OpValueUnion value;
    value.Set(std::move(result_));
    return value;
  }
  [[nodiscard]] std::uint64_t tokens_done() const noexcept override { return 0; }

 private:
  // The version's hash is not computed: it would read a large model once more at every step.
  Status publish() {
    ModelMemory& memory = env_.state->memory;
    if (memory.sampler16.empty())
      copy_floats(env_.state->device, memory.weights.data(), memory.sampler.data(),
                  memory.weights.size());
    else
      round_floats(env_.state->device, memory.weights, memory.sampler16);
    env_.state->sampler_version = env_.version_out;
    result_.version = env_.version_out;
    result_.bytes = memory.sampler.size_bytes() + memory.sampler16.size_bytes();
    result_.step = env_.state->step;
    return {};
  }
  Status write() {
    HostState host(*env_.state, /*with_contents=*/true);
    PLEXRL_ASSIGN(const SavedFile file, save_checkpoint(env_.fd, host.state(), args_.format));
    // Here and not in plexrld, whose loop would stand still for it; there only the name is left to
    // sync.
    if (args_.target == SaveTarget::Store && ::fsync(env_.fd) != 0)
      return errno_error(Code::IO, errno, "save: sync the checkpoint");
    result_.bytes = file.bytes;
    result_.sha256 = file.sha256;
    result_.step = env_.state->step;
    return {};
  }

  OpEnv env_;
  wire::SaveArgsT args_;
  wire::SaveResultT result_;
};

class LoadOp final : public OpRun {
 public:
  LoadOp(const OpEnv& env, const wire::LoadArgsT& args) : env_(env), args_(args) {}

  Result<bool> step() override {
    return guarded("load", [this]() -> Result<bool> {
      HostState host(*env_.state, /*with_contents=*/false);
      PLEXRL_TRY(load_checkpoint(env_.fd, host.state(), args_.with_optimizer));
      PLEXRL_ASSIGN(result_.sha256, state_sha256(host.state()));
      host.write_back();
      result_.step = env_.state->step;
      return true;
    });
  }
  wire::OpValueUnion take_result() override {
    wire::OpValueUnion value;
    value.Set(std::move(result_));
    return value;
  }
  [[nodiscard]] std::uint64_t tokens_done() const noexcept override { return 0; }

 private:
  OpEnv env_;
  wire::LoadArgsT args_;
  wire::LoadResultT result_;
};

}  // namespace

OpRunResult make_save(const OpEnv& env, const wire::SaveArgsT& args) {
  if (env.state->layout->mode == wire::TrainMode::None)
    return error(Code::UNSUPPORTED, "save: this model is for sampling only");
  if (args.target > SaveTarget::MAX || args.format > wire::FileFormat::MAX)
    return error(Code::UNSUPPORTED, "save: target or format is not known to this version");
  if (args.target == SaveTarget::Sampler && env.version_out == 0)
    return error(Code::INVALID_ARGUMENT, "save: a published version needs a number above 0");
  if (args.target != SaveTarget::Sampler && env.fd < 0)
    return error(Code::INVALID_ARGUMENT, "save: no file descriptor came with the op");
  return std::unique_ptr<OpRun>(std::make_unique<SaveOp>(env, args));
}

OpRunResult make_load(const OpEnv& env, const wire::LoadArgsT& args) {
  if (env.state->layout->mode == wire::TrainMode::None)
    return error(Code::UNSUPPORTED, "load: this model is for sampling only");
  if (args.target != SaveTarget::Store && args.target != SaveTarget::ClientFd)
    return error(Code::INVALID_ARGUMENT, "load: from the store or a client's file only");
  if (env.fd < 0) return error(Code::INVALID_ARGUMENT, "load: no file descriptor came with the op");
  return std::unique_ptr<OpRun>(std::make_unique<LoadOp>(env, args));
}

}  // namespace plexrl::model
