// SPDX-License-Identifier: Apache-2.0
// BatchDecoder: decodes the rows of several generate requests as one batch. All are of one base (or
// of one version of a full-parameter model); each has its version, rules and caches. A request
// joins and leaves between steps. On our own kernels each draws what it would alone, bit for bit.
//
// One thread at a time. Owns no model memory; between steps only ordinary heap memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine_torch/generate_request.h"

namespace plexrl::model {

class BatchDecoder {
 public:
  // For the base of this model. The memory of its base must be mapped in every step.
  BatchDecoder(const ModelState& state, std::uint64_t version);

  [[nodiscard]] bool fits(const ModelState& state, std::uint64_t version) const noexcept;
  // From the next step on; it must fit. Borrowed until it leaves. Binds its adapter: its model must
  // be resident now and in every step.
  void join(GenerateRequest& request);
  // Between any two steps, finished or not; it can join again, here or elsewhere.
  void leave(const GenerateRequest& request);

  // A request that cannot go on and has left. The others are not touched by it.
  struct Failure {
    const GenerateRequest* request;
    Status error;
  };
  // One token of every row that decodes, and some of the prompts: of all requests in turn, at least
  // half a chunk when there are so many, so that neither a long prompt stops the rows nor many rows
  // the prompts. Failures: NOT_FOUND when the version is held no more, INVALID_ARGUMENT when its
  // logits are not finite. An error is the batch's: NO_CAPACITY when the activation arena is too
  // small; no request may go on after it.
  [[nodiscard]] Result<std::vector<Failure>> step();

 private:
  struct Member {
    GenerateRequest* request;
    std::shared_ptr<const RowAdapter> adapter;  // shared by requests of the same version
  };
  struct Planned {
    GenerateRequest* request;
    PlannedToken token;
  };
  struct Draw {
    GenerateRequest* request;
    std::uint32_t row;
    std::int64_t logits;  // number of the row of logits
    SampledToken drawn;
  };

  void check_versions();
  [[nodiscard]] std::vector<Planned> plan();
  void add(const Member& member, std::vector<PlannedToken>& tokens, std::vector<Planned>& plan);
  [[nodiscard]] Status compute(std::span<const Planned> chunk);
  [[nodiscard]] Status draw_all(std::span<const Planned> chunk);
  void draw(const float* logits, std::span<Draw> draws);
  void fail(const GenerateRequest& request, Status error);
  [[nodiscard]] bool failed(const GenerateRequest& request) const noexcept;

  // What fits.
  const void* weights_;
  ModelDevice device_;
  std::optional<std::uint64_t> version_;  // of a full-parameter model

  std::unique_ptr<TokenDecoder> decoder_;
  std::vector<Member> members_;  // those of one adapter are neighbours
  std::vector<Failure> failures_;
  std::vector<SamplingScratch> sampling_;  // one per thread
};

}  // namespace plexrl::model
