// SPDX-License-Identifier: Apache-2.0
// generate: a batch of its own rows, token by token.
#include "engine_torch/batch_decoder.h"
#include "engine_torch/op_checks.h"
#include "engine_torch/op_factories.h"

namespace plexrl::model {
namespace {

class GenerateOp final : public OpRun {
 public:
  explicit GenerateOp(GenerateRequest request)
      : request_(std::move(request)), batch_(request_.state(), request_.version()) {
    batch_.join(request_);
  }

  Result<bool> step() override {
    return guarded("generate", [this]() -> Result<bool> {
      PLEXRL_ASSIGN(auto failures, batch_.step());
      if (!failures.empty()) return std::move(failures.front().error);
      return request_.finished();
    });
  }
  wire::OpValueUnion take_result() override {
    wire::OpValueUnion value;
    value.Set(request_.take_result());
    return value;
  }
  [[nodiscard]] std::uint64_t tokens_done() const noexcept override {
    return request_.tokens_done();
  }

 private:
  GenerateRequest request_;
  BatchDecoder batch_;
};

}  // namespace

OpRunResult make_generate(const OpEnv& env, const wire::GenerateArgsT& args) {
  PLEXRL_ASSIGN(auto request, GenerateRequest::make(env, args));
  return std::unique_ptr<OpRun>(std::make_unique<GenerateOp>(std::move(request)));
}

}  // namespace plexrl::model
