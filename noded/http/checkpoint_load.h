// SPDX-License-Identifier: Apache-2.0
// Models of a job that have the weights of one of its user's checkpoints, for sampling: the model
// is made, loads the checkpoint without its optimizer and publishes. Goes on without the request
// that asked for it. Loop thread only.
#pragma once

#include <functional>
#include <string>

#include "http/model_call.h"

namespace plexrl::http {

// What a checkpoint says of the model that it is of.
struct Origin {
  std::string base;
  wire::TrainMode mode = wire::TrainMode::Lora;
  std::uint32_t rank = 0;
};
// CORRUPT: its text cannot be read.
[[nodiscard]] Result<Origin> read_origin(const runtime::CheckpointStore::Described& checkpoint);

struct CheckpointLoad {
  std::string model;  // its name; one that is there is used again
  std::string file;   // of the caller's user
  // The number of the load in the model's stream, the publish has the next. A number that is known
  // has its first result.
  std::function<Result<std::uint64_t>(const runtime::Model&)> seq;
};
// `done` is called once. A model that has never held a checkpoint when its load fails is removed.
void load_checkpoint(HttpContext& context, TenantId tenant, const Origin& origin,
                     CheckpointLoad load, std::function<void(const Result<ModelId>&)> done);

}  // namespace plexrl::http
