// SPDX-License-Identifier: Apache-2.0
// What is left when all jobs are gone: nothing.
#include <nlohmann/json.hpp>

#include "ring_checks.h"

namespace plexrl::runtime {

void RingChecks::nothing_left() {
  NodeRuntime& runtime = node_.runtime();
  const auto table = nlohmann::json::parse(runtime.state().table_json());
  std::uint64_t base_chunks = 0;
  for (const auto& model : table.at("models")) {
    if (model.at("tenant") != 0) broken_.add("a model is left: %s", model.dump().c_str());
    if (model.at("tier") != "host") base_chunks += model.at("segments").size();
  }
  const auto& device = table.at("device");
  if (device.at("chunks").get<std::uint64_t>() - device.at("free_chunks").get<std::uint64_t>() !=
      base_chunks)
    broken_.add("device chunks are left: %s", table.dump().c_str());
  if (table.at("host").at("chunks") != table.at("host").at("free_chunks"))
    broken_.add("host chunks are left: %s", table.dump().c_str());
  if (!table.at("tenants").empty()) broken_.add("a reservation is left: %s", table.dump().c_str());
  if (!table.at("disk").is_null() && table.at("disk").at("used_chunks") != 0)
    broken_.add("room of the disk tier is left: %s", table.dump().c_str());
  if (!node_.blobs().blobs.empty()) broken_.add("%zu blobs are left", node_.blobs().blobs.size());
  if (!runtime.flows().empty()) broken_.add("%zu streams are left", runtime.flows().size());
  if (node_.ledger().mapped() != base_chunks)
    broken_.add("engines hold %zu chunks of the device, %" PRIu64 " are the base's",
                node_.ledger().mapped(), base_chunks);
  for (const char* const name :
       {"ops", "results", "losses", "models", "manifests", "tenants", "leases"})
    (void)node_.disk().scan(name, [&](std::uint64_t key, std::uint64_t subkey, std::string_view) {
      broken_.add("row %" PRIu64 " %" PRIu64 " of table %s is left", key, subkey, name);
    });
}

}  // namespace plexrl::runtime
