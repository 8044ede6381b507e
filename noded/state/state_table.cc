// SPDX-License-Identifier: Apache-2.0
// The state table as one JSON document, for `plexrl status` and for people who look for lost
// memory.
#include <nlohmann/json.hpp>

#include "state/chunk_state_manager.h"

namespace plexrl::state {
namespace {

using Json = nlohmann::ordered_json;

Json position_json(const Position& position) {
  return {{"step", position.step},
          {"version", position.version},
          {"applied_seq", position.applied_seq},
          {"gradients_pending", position.gradients_pending}};
}

Json segment_json(const ModelRecord& record, const SegmentSpec& spec) {
  Json tiers = Json::array();
  if (record.device.contains(spec.kind)) tiers.push_back("device");
  const bool gradients = spec.kind == SegmentKind::kGradients && !record.gradients.empty();
  if (record.committed(spec.kind) != nullptr || gradients) tiers.push_back("host");
  return {{"kind", kind_name(spec.kind)},
          {"bytes", spec.bytes},
          {"committed", spec.committed},
          {"dirty", record.dirty.contains(spec.kind)},
          {"tiers", std::move(tiers)}};
}

Json model_json(ModelId id, const ModelRecord& record) {
  Json segments = Json::array();
  for (const SegmentSpec& spec : record.segments) segments.push_back(segment_json(record, spec));
  return {{"model", id.value},
          {"tenant", record.tenant.value},
          {"tier", tier_name(record.tier)},
          {"epoch", record.manifest.epoch},
          {"committed", position_json(record.manifest.position)},
          {"now", position_json(record.now)},
          {"copying", record.copy.has_value()},
          {"park_commits", record.park_commits},
          {"kv_bytes", record.kv ? record.kv->bytes : 0},
          {"segments", std::move(segments)}};
}

}  // namespace

std::string ChunkStateManager::table_json() const {
  const auto pool = [&](const ChunkAllocator& chunks) {
    return Json{{"chunks", chunks.size()}, {"free_chunks", chunks.free()}};
  };
  Json tenants = Json::array();
  for (const auto& [id, tenant] : tenants_)
    tenants.push_back({{"tenant", id.value},
                       {"reserved_bytes", tenant.reserved * sizes_.chunk_bytes},
                       {"admitted_bytes", tenant.admitted * sizes_.chunk_bytes},
                       {"kv_parked_bytes", tenant.kv * sizes_.chunk_bytes}});
  Json models = Json::array();
  for (const auto& [id, record] : models_) models.push_back(model_json(id, record));
  return Json{{"chunk_bytes", sizes_.chunk_bytes},
              {"device", pool(device_)},
              {"host", pool(host_)},
              {"tenants", std::move(tenants)},
              {"models", std::move(models)}}
      .dump();
}

}  // namespace plexrl::state
