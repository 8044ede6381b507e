// SPDX-License-Identifier: Apache-2.0
// The state table as one JSON document, for `plexrl status` and for people who look for lost
// memory.
#include <algorithm>
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
  const Manifest::Entry* const entry = record.committed(spec.kind);
  if ((entry != nullptr && !entry->host.empty()) || gradients) tiers.push_back("host");
  const bool on_disk = (entry != nullptr && entry->blob) ||
                       (spec.kind == SegmentKind::kGradients && record.gradients_blob);
  if (on_disk) tiers.push_back("disk");
  std::uint64_t shadow = 0;
  if (record.copy)
    for (const auto& copied : record.copy->entries)
      if (copied.kind == spec.kind) shadow = copied.host.size();
  return {{"kind", kind_name(spec.kind)}, {"bytes", spec.bytes},
          {"committed", spec.committed},  {"dirty", record.dirty.contains(spec.kind)},
          {"shadow_chunks", shadow},      {"tiers", std::move(tiers)}};
}

// What of a model goes between host memory and disk now.
Json transfer_json(const Transfer& transfer, const DiskTier& disk) {
  std::uint64_t bytes = 0;
  std::uint64_t moved = transfer.storing ? 0 : disk.progress(transfer.io);
  for (std::size_t i = 0; i < transfer.pieces.size(); ++i) {
    bytes += transfer.pieces[i].bytes;
    if (i < transfer.at) moved += transfer.pieces[i].bytes;
  }
  return {{"direction", transfer.fetch ? "from_disk" : "to_disk"},
          {"bytes", bytes},
          {"moved_bytes", moved}};
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
          {"pinned", !record.at_rest()},
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
  for (const auto& [id, record] : models_) {
    Json model = model_json(id, record);
    const auto transfer = transfers_.find(id);
    const auto request = std::find_if(requests_.begin(), requests_.end(),
                                      [id = id](const Request& one) { return one.model == id; });
    const bool waits = request != requests_.end();
    if (transfer != transfers_.end()) model["transfer"] = transfer_json(transfer->second, *disk_);
    model["prefetching"] = waits && request->prefetch;
    model["waits_for_room"] = waits && transfer == transfers_.end();
    models.push_back(std::move(model));
  }
  Json disk;
  if (disk_ != nullptr)
    disk = {
        {"chunks", disk_->chunks()}, {"used_chunks", disk_->used()}, {"method", disk_->method()}};
  return Json{{"chunk_bytes", sizes_.chunk_bytes},
              {"device", pool(device_)},
              {"host", pool(host_)},
              {"disk", std::move(disk)},
              {"tenants", std::move(tenants)},
              {"models", std::move(models)}}
      .dump();
}

}  // namespace plexrl::state
