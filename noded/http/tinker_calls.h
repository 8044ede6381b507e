// SPDX-License-Identifier: Apache-2.0
// What the calls of the Tinker API share. Loop thread only.
#pragma once

#include <functional>
#include <string>

#include "http/model_call.h"
#include "http/tinker_ids.h"
#include "http/tinker_train.h"

namespace plexrl::http {

// The job's model of that id; nullptr when there is none, or it is being removed.
[[nodiscard]] runtime::Model* find_tinker_model(HttpContext& context, TenantId tenant,
                                                const std::string& id);

void answer_promise(Exchange& exchange, const Promise& promise);
// The number in the model's stream of the call that its client numbers so.
[[nodiscard]] std::uint64_t stream_number(const runtime::Model& model, std::uint64_t seq);
// Refuses an `optimizer_config` that is not AdamW's.
void check_optimizer(BodyFields& fields);

// Gives the op to the model's stream and answers with the promise of `kind` and `text` once a
// restart cannot lose it. 404: no such model; 429: the queue is full.
void submit_training(HttpContext& context, Exchange& exchange, TenantId tenant,
                     TrainRequest request, Promise::Kind kind, std::string text = "");

// The version that a model made by load_for_sampling has.
inline constexpr std::uint64_t kLoadedVersion = 2;
[[nodiscard]] std::string loaded_name(const std::string& file);
// A model of the job that has the checkpoint's weights published, for sampling only; one that is
// there is used again. Few of them are kept, see tinker_checkpoints.cc.
void load_for_sampling(HttpContext& context, TenantId tenant, const std::string& file,
                       std::function<void(const Result<ModelId>&)> done);

}  // namespace plexrl::http
