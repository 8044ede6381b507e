// SPDX-License-Identifier: Apache-2.0
// KV: the memory of one generate of a resident model.
#include <algorithm>
#include <cinttypes>

#include "base/check.h"
#include "state/chunk_state_manager.h"

namespace plexrl::state {

Result<SegmentMove> ChunkStateManager::allocate_kv(ModelId model, std::uint64_t bytes) {
  ModelRecord& record = at(model);
  PLEXRL_CHECK(record.tier == Tier::kResident && record.tenant, "KV is a resident tenant's");
  if (record.kv) return error(Code::EXISTS, "model %" PRIu64 " has KV already", model.value);
  auto chunks = device_.allocate(chunks_of(bytes));
  if (!chunks)
    return error(Code::NO_CAPACITY,
                 "KV of model %" PRIu64 " needs %" PRIu64 " bytes of device memory, %" PRIu64
                 " are free",
                 model.value, bytes, device_.free() * sizes_.chunk_bytes);
  record.kv = ModelRecord::Kv{bytes, *chunks, {}, false};
  return SegmentMove{SegmentKind::kKv, bytes, std::move(*chunks), {}};
}

void ChunkStateManager::free_kv(ModelId model) {
  ModelRecord& record = at(model);
  if (!record.kv) return;
  if (record.tier == Tier::kResuming || record.tier == Tier::kSuspending) {
    record.kv->leaving = true;
  } else {
    drop_kv(record);
  }
}

std::uint64_t ChunkStateManager::retire_kv(ModelId model) {
  ModelRecord& record = at(model);
  if (!record.kv) return 0;
  record.kv->leaving = true;
  record.kv->retired_as = ++last_retired_;
  if (record.tier != Tier::kResuming && record.tier != Tier::kSuspending) drop_leaving_kv(record);
  return last_retired_;
}

void ChunkStateManager::kv_dropped(ModelId model, std::uint64_t number) {
  const auto found = models_.find(model);
  if (found == models_.end()) return;
  ModelRecord& record = found->second;
  if (record.kv && record.kv->retired_as == number) record.kv->retired_as = 0;
  if (const auto retired = record.retired.extract(number); !retired.empty())
    device_.give_back(retired.mapped());
}

bool ChunkStateManager::kv_retiring() const {
  return std::any_of(models_.begin(), models_.end(),
                     [](const auto& entry) { return !entry.second.retired.empty(); });
}

// The model does not move any more.
void ChunkStateManager::drop_leaving_kv(ModelRecord& record) {
  if (!record.kv || !record.kv->leaving) return;
  const std::uint64_t number = record.kv->retired_as;
  if (number != 0 && !record.kv->device.empty())
    record.retired[number] = std::exchange(record.kv->device, {});
  drop_kv(record);
}

// Of an engine that is gone, or of a model that it has forgotten.
void ChunkStateManager::drop_retired_kv(ModelRecord& record) {
  for (const auto& [number, chunks] : record.retired) device_.give_back(chunks);
  record.retired.clear();
}

void ChunkStateManager::drop_kv(ModelRecord& record) {
  if (!record.kv) return;
  drop_kv_host(record);
  device_.give_back(record.kv->device);
  record.kv.reset();
}

void ChunkStateManager::drop_kv_host(ModelRecord& record) {
  if (!record.kv || (record.kv->host.empty() && !record.kv->blob)) return;
  tenants_.at(record.tenant).kv -= chunks_of(record.kv->bytes);
  drop_parked(record, SegmentKind::kKv, record.kv->host, record.kv->blob);
}

}  // namespace plexrl::state
