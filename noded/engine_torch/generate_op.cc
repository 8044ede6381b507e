// SPDX-License-Identifier: Apache-2.0
// generate: token by token, in a batch with others or in one of its own.
#include <algorithm>

#include "engine_torch/batch_decoder.h"
#include "engine_torch/op_checks.h"
#include "engine_torch/op_factories.h"

namespace plexrl::model {
namespace {

class GenerateOp final : public OpRun {
 public:
  explicit GenerateOp(GenerateRequest request) : request_(std::move(request)) {}

  Result<bool> step() override {
    if (!own_) {
      own_ = make_batch();
      PLEXRL_TRY(own_->join(*this));
    }
    PLEXRL_ASSIGN(const auto ended, own_->step());
    for (const OpBatch::Ended& end : ended) PLEXRL_TRY(end.status);
    return !ended.empty();
  }
  wire::OpValueUnion take_result() override {
    wire::OpValueUnion value;
    value.Set(request_.take_result());
    return value;
  }
  [[nodiscard]] std::uint64_t tokens_done() const noexcept override {
    return request_.tokens_done();
  }
  [[nodiscard]] std::unique_ptr<OpBatch> make_batch() const override;

  [[nodiscard]] GenerateRequest& request() noexcept { return request_; }
  [[nodiscard]] const GenerateRequest& request() const noexcept { return request_; }

 private:
  GenerateRequest request_;
  std::unique_ptr<OpBatch> own_;
};

class GenerateBatch final : public OpBatch {
 public:
  explicit GenerateBatch(const GenerateRequest& first) : decoder_(first.state(), first.version()) {}

  [[nodiscard]] bool fits(const OpRun& run) const override {
    const auto* const op = dynamic_cast<const GenerateOp*>(&run);
    return op != nullptr && decoder_.fits(op->request().state(), op->request().version());
  }
  Status join(OpRun& run) override {
    auto& op = dynamic_cast<GenerateOp&>(run);
    const Result<bool> joined = guarded("generate", [&]() -> Result<bool> {
      decoder_.join(op.request());
      return true;
    });
    if (!joined) return joined.error();
    members_.push_back(&op);
    return {};
  }
  void leave(const OpRun& run) override {
    decoder_.leave(dynamic_cast<const GenerateOp&>(run).request());
    std::erase(members_, &run);
  }
  Result<std::vector<Ended>> step() override {
    std::vector<Ended> ended;
    const Result<bool> done = guarded("generate", [&]() -> Result<bool> {
      PLEXRL_ASSIGN(auto failures, decoder_.step());
      for (GenerateOp* const op : members_) {
        const GenerateRequest* const request = &op->request();
        const auto failed = std::find_if(failures.begin(), failures.end(),
                                         [&](const auto& f) { return f.request == request; });
        if (failed != failures.end())
          ended.push_back({op, std::move(failed->error)});
        else if (request->finished())
          ended.push_back({op, {}});
      }
      return true;
    });
    if (!done) return done.error();
    for (const Ended& end : ended) leave(*end.run);
    return ended;
  }

 private:
  BatchDecoder decoder_;
  std::vector<GenerateOp*> members_;
};

std::unique_ptr<OpBatch> GenerateOp::make_batch() const {
  return std::make_unique<GenerateBatch>(request_);
}

}  // namespace

OpRunResult make_generate(const OpEnv& env, const wire::GenerateArgsT& args) {
  PLEXRL_ASSIGN(auto request, GenerateRequest::make(env, args));
  return std::unique_ptr<OpRun>(std::make_unique<GenerateOp>(std::move(request)));
}

}  // namespace plexrl::model
