// SPDX-License-Identifier: Apache-2.0
// TinkerSamples: the samples that were asked for, and their results for as long as there is room
// for them (kResultBytes and kResults of a job; the oldest go first). They are not kept over a
// restart: a promise that is gone is answered 410, upon which the client asks for the sample anew.
// A sample is known by its sampling session and seq_id, so a repeated request is the same one. Loop
// thread only.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "http/model_call.h"
#include "http/tinker_ids.h"
#include "http/tinker_sample.h"

namespace plexrl::http {

class TinkerSamples {
 public:
  static constexpr std::size_t kResultBytes = std::size_t{64} << 20;
  static constexpr std::size_t kResults = 8192;

  explicit TinkerSamples(HttpContext& context);

  // Answers with a promise once the queue has taken the sample; 404, 429.
  void begin(Exchange& exchange, TenantId tenant, TinkerSample request);
  // The sample of a promise: nullptr when it is gone, or was never there.
  struct Sample {
    TenantId tenant;
    std::uint64_t number = 0;
    TinkerSample request;
    SamplerId sampler;
    std::vector<SessionId> starters;  // requests that wait for the promise
    std::set<SessionId> polls;        // requests that wait for the result
    bool taken = false;               // by the queue; the promise is given
    bool done = false;
    ModelId model;
    std::uint64_t version = 0;
    std::shared_ptr<const TextCodec> codec;
    std::uint64_t op_request = 0;  // of the op that runs for it
    Status status;                 // of the result
    SampleResult result;
    std::size_t bytes = 0;
  };
  [[nodiscard]] Sample* find(TenantId tenant, const Promise& promise);
  [[nodiscard]] std::size_t held() const { return samples_.size(); }
  void tenant_closed(TenantId tenant);

 private:
  struct OfTenant {
    std::map<std::pair<std::string, std::uint64_t>, std::uint64_t> known;  // to their numbers
    std::deque<std::uint64_t> finished;                                    // the oldest first
    std::size_t bytes = 0;
  };
  using Number = std::uint64_t;

  [[nodiscard]] Sample* find(Number number);
  [[nodiscard]] Result<SamplerId> sampler_of(TenantId tenant, const TinkerSample& request) const;
  void find_model(Sample& sample);
  void model_found(Number number, const Result<ModelId>& model, std::uint64_t version);
  void codec_found(Number number, const Result<std::shared_ptr<const TextCodec>>& codec);
  void generate(Number number);
  void submit(Sample& sample, wire::OpArgsUnion args);
  void op_ended(Number number, const runtime::OpOutcome& outcome);
  void take(Sample& sample);
  void finish(Sample& sample, Status status);
  void drop(Number number, const Status& why, std::uint32_t retry_after_ms);
  void make_room(TenantId tenant);
  void forget(Number number);

  HttpContext& context_;
  std::uint64_t run_;  // of plexrld
  std::uint64_t last_number_ = 0;
  std::map<Number, Sample> samples_;
  std::map<TenantId, OfTenant> tenants_;
};

}  // namespace plexrl::http
