// SPDX-License-Identifier: Apache-2.0
// EngineForget and the end of dropped ops.
#include <utility>

#include "engine_torch/memory_command.h"

namespace plexrl::worker {
namespace {

wire::EngineBodyUnion done_body() {
  wire::EngineBodyUnion body;
  body.Set(wire::EngineDoneT());
  return body;
}

bool is_base_in_use(const ModelTable& table) {
  for (const auto& [id, model] : table.all())
    if (!model->is_base() && model->mode != wire::TrainMode::Full) return true;
  return false;
}

class ForgetCommand final : public MemoryCommand {
 public:
  ForgetCommand(ModelTable& table, OpOwner& ops, std::uint64_t id)
      : table_(table), ops_(ops), id_(id) {}

  [[nodiscard]] bool refusable() const override { return false; }
  // A model that is not known is forgotten already.
  Status prepare() override {
    const HeldModel* const model = table_.find(id_);
    if (model == nullptr) return {};
    if (model->running_op != 0)
      return error(Code::INVALID_ARGUMENT, "op %llu of model %llu runs; drop it first",
                   static_cast<unsigned long long>(model->running_op),
                   static_cast<unsigned long long>(id_));
    if (model->is_base() && is_base_in_use(table_))
      return error(Code::INVALID_ARGUMENT, "the base has adapters; forget them first");
    return {};
  }
  // Destroying the reservations unmaps them: nothing to do that could take long.
  Status work() override { return {}; }
  wire::EngineBodyUnion finish(const Status& /*outcome*/) override {
    ops_.forget_model(id_);
    table_.erase(id_);
    return done_body();
  }

 private:
  ModelTable& table_;
  OpOwner& ops_;
  std::uint64_t id_;
};

class AbandonCommand final : public MemoryCommand {
 public:
  AbandonCommand(ModelTable& table, std::uint64_t id, std::uint64_t op,
                 std::unique_ptr<model::OpRun> run)
      : table_(table), id_(id), op_(op), run_(std::move(run)) {}

  [[nodiscard]] bool must_run() const override { return true; }
  [[nodiscard]] bool refusable() const override { return false; }
  [[nodiscard]] bool undoes_op_of(std::uint64_t model) const override { return model == id_; }
  [[nodiscard]] bool blocked() const override {
    const HeldModel* const model = table_.find(id_);
    return model != nullptr && model->running_op != 0;
  }

  Status prepare() override {
    model_ = table_.find(id_);
    resident_ = model_ != nullptr && model_->residency == Residency::kResident;
    if (resident_) model_->residency = Residency::kMoving;
    return {};
  }

  Status work() override {
    if (model_ == nullptr) return {};
    if (run_ && resident_) run_->abandon();
    if (!model_->kv || model_->kv_op != op_) return {};
    return unmap_segment(table_, *model_->kv);
  }

  wire::EngineBodyUnion finish(const Status& outcome) override {
    if (model_ == nullptr) return done_body();
    if (resident_) model_->residency = Residency::kResident;
    if (run_ && !resident_) model_->abandoned.push_back(std::move(run_));
    if (!outcome.ok()) return failure_body(outcome);
    if (model_->kv_op == op_) {
      model_->kv.reset();
      model_->kv_op = 0;
    }
    return done_body();
  }

 private:
  ModelTable& table_;
  std::uint64_t id_;
  std::uint64_t op_;
  std::unique_ptr<model::OpRun> run_;
  HeldModel* model_ = nullptr;
  bool resident_ = false;
};

}  // namespace

std::unique_ptr<MemoryCommand> make_forget(ModelTable& table, OpOwner& ops,
                                           const wire::EngineForgetT& request) {
  return std::make_unique<ForgetCommand>(table, ops, request.model);
}

std::unique_ptr<MemoryCommand> make_abandon(ModelTable& table, std::uint64_t model,
                                            std::uint64_t op, std::unique_ptr<model::OpRun> run) {
  return std::make_unique<AbandonCommand>(table, model, op, std::move(run));
}

}  // namespace plexrl::worker
