// SPDX-License-Identifier: Apache-2.0
// What `model` of a request means for its job: the name of one of its models or loaded adapters
// (the newest version), NAME@VERSION, or the name of a base of its grant (version 0). Nothing of
// other jobs can be named. Loop thread only.
#pragma once

#include <string>
#include <vector>

#include "runtime/node_runtime.h"

namespace plexrl::http {

struct NamedModel {
  std::string name;           // of the job's model; of a base the one that samples it
  std::string base;           // not "": `name` has to be made first
  std::uint64_t version = 0;  // unless `newest`
  bool newest = false;
  bool adapter = false;  // without a version it has no weights: it is not the base then
};

// The job's model that only samples a base; no name of a user's has that form in /v1/models.
[[nodiscard]] std::string sampler_name(const std::string& base);
[[nodiscard]] bool is_sampler_name(const std::string& name);

// The job's model that has the weights of an adapter of /v1/load_lora_adapter, and back; "" for
// other models.
inline constexpr std::size_t kMaxAdapterName = 62;
[[nodiscard]] std::string adapter_model(const std::string& adapter);
[[nodiscard]] std::string adapter_of(const std::string& model);

// NOT_FOUND, in the words that clients know.
[[nodiscard]] Result<NamedModel> find_named(runtime::NodeRuntime& node,
                                            const runtime::Tenant& tenant, const std::string& name);

}  // namespace plexrl::http
