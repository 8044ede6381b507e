// SPDX-License-Identifier: Apache-2.0
#include "state/chunk_state_manager.h"

#include <algorithm>
#include <cinttypes>

#include "base/check.h"
#include "base/log.h"
#include "state/manifest_codec.h"
#include "store/async_store.h"

namespace plexrl::state {
namespace {

constexpr std::size_t kMaxSegments = 8;

Chunks all_chunks(const Manifest& manifest) {
  Chunks all;
  for (const auto& entry : manifest.entries)
    all.insert(all.end(), entry.host.begin(), entry.host.end());
  return all;
}

std::vector<BlobId> all_blobs(const Manifest& manifest) {
  std::vector<BlobId> all;
  for (const auto& entry : manifest.entries)
    if (entry.blob) all.push_back(entry.blob);
  return all;
}

SegmentMove move_of(const SegmentSpec& spec, Chunks device, Chunks host) {
  return {spec.kind, spec.bytes, std::move(device), std::move(host)};
}

}  // namespace

Result<std::unique_ptr<StateManager>> open_state_manager(const PoolSizes& sizes,
                                                         store::AsyncStore& store,
                                                         bool host_pool_is_new, DiskOptions disk) {
  PLEXRL_CHECK(sizes.chunk_bytes > 0, "a chunk has bytes");
  auto manager = std::make_unique<ChunkStateManager>(sizes, store, std::move(disk));
  PLEXRL_TRY(manager->load(host_pool_is_new).within("manifests"));
  return std::unique_ptr<StateManager>(std::move(manager));
}

ChunkStateManager::ChunkStateManager(const PoolSizes& sizes, store::AsyncStore& store,
                                     DiskOptions disk)
    : sizes_(sizes), store_(store), device_(sizes.device_chunks), host_(sizes.host_chunks) {
  if (disk.blobs != nullptr) disk_ = std::make_unique<DiskTier>(std::move(disk));
}

// ---- opening ----

Status ChunkStateManager::load(bool host_pool_is_new) {
  std::vector<std::uint64_t> gone;
  Status failed;
  PLEXRL_TRY(
      store_.scan(kManifestTable, [&](std::uint64_t key, std::uint64_t, std::string_view value) {
        const Status status = load_row(ModelId{key}, value, host_pool_is_new);
        if (status.ok()) return;
        // What was in host memory only went with the pool.
        if (status.code() == Code::NOT_FOUND) return gone.push_back(key);
        if (status.code() == Code::CORRUPT) {
          damaged_.emplace(ModelId{key}, status.text());
        } else {
          failed = status;
        }
      }));
  PLEXRL_TRY(failed);
  for (const std::uint64_t key : gone)
    PLEXRL_TRY(store_.erase(kManifestTable, key, kManifestSubkey));
  if (disk_ != nullptr) disk_->sweep();
  return {};
}

Status ChunkStateManager::load_row(ModelId model, std::string_view row, bool host_pool_is_new) {
  auto manifest = decode_manifest(row, sizes_.host_chunks);
  if (!manifest && host_pool_is_new) return error(Code::NOT_FOUND, "gone with the host pool");
  PLEXRL_TRY(manifest.status());
  if (manifest->model != model) return error(Code::CORRUPT, "manifest: belongs to another model");
  const auto in_host = [](const Manifest::Entry& entry) { return !entry.blob; };
  const auto& entries = manifest->entries;
  if (host_pool_is_new && std::any_of(entries.begin(), entries.end(), in_host))
    return error(Code::NOT_FOUND, "gone with the host pool");
  PLEXRL_TRY(adopt_places(*manifest));
  stored_.emplace(model, std::move(manifest).value());
  return {};
}

Status ChunkStateManager::adopt_places(const Manifest& manifest) {
  for (const auto& entry : manifest.entries) {
    if (!entry.blob) continue;
    if (disk_ == nullptr)
      return error(Code::INVALID_ARGUMENT,
                   "state of model %" PRIu64
                   " is in the disk tier, and none is configured: set disk_tier_dir again",
                   manifest.model.value);
    if (!disk_->adopt(entry.blob, chunks_of(entry.bytes)))
      return error(Code::CORRUPT, "manifest: blob %" PRIu64 " of segment %s is missing",
                   entry.blob.value, kind_name(entry.kind));
  }
  if (!host_.take(all_chunks(manifest)))
    return error(Code::CORRUPT, "manifest: names chunks of another one");
  return {};
}

Status ChunkStateManager::open_tenant(TenantId tenant, std::uint64_t host_bytes) {
  if (tenants_.contains(tenant))
    return error(Code::EXISTS, "tenant %" PRIu64 " has its host memory already", tenant.value);
  std::uint64_t reserved = 0;
  for (const auto& [id, other] : tenants_) reserved += other.reserved;
  const std::uint64_t wanted = host_bytes / sizes_.chunk_bytes;
  // doc/state.md, "Admission", proves that this is enough with a disk tier.
  const std::uint64_t disk =
      disk_ == nullptr ? 0 : disk_->chunks() - std::min(disk_->chunks(), 2 * disk_->kv_chunks());
  const std::uint64_t all = host_.size() + disk;
  const std::uint64_t left = all - std::min(all, reserved);
  if (wanted > left || wanted > host_.size())
    return error(Code::NO_CAPACITY,
                 "tenant %" PRIu64 " wants %" PRIu64 " bytes of host memory, of %" PRIu64
                 " (%" PRIu64 " for one job) there are %" PRIu64
                 " free; check plexrl_mem in gres.conf against the pool",
                 tenant.value, host_bytes, all * sizes_.chunk_bytes,
                 host_.size() * sizes_.chunk_bytes, left * sizes_.chunk_bytes);
  tenants_[tenant].reserved = wanted;
  return {};
}

void ChunkStateManager::close_tenant(TenantId tenant) {
  std::vector<ModelId> models;
  for (const auto& [id, record] : models_)
    if (record.tenant == tenant) models.push_back(id);
  for (const ModelId model : models) {
    const Tier tier = at(model).tier;
    PLEXRL_CHECK(
        tier != Tier::kResuming && tier != Tier::kSuspending && (!at(model).copy || at(model).flip),
        "a tenant was closed while a model of it moves");
    remove_model(model);
  }
  tenants_.erase(tenant);
}

Status ChunkStateManager::charge(TenantId id, std::uint64_t bytes) {
  const auto found = tenants_.find(id);
  if (found == tenants_.end())
    return error(Code::NOT_FOUND, "tenant %" PRIu64 " is not open", id.value);
  Tenant& tenant = found->second;
  const std::uint64_t used = tenant.admitted + tenant.kv;
  const std::uint64_t left = tenant.reserved - std::min(tenant.reserved, used);
  const std::uint64_t wanted = chunks_of(bytes);
  if (wanted > left)
    return error(Code::NO_CAPACITY,
                 "%" PRIu64 " bytes of host memory are needed, the job has %" PRIu64
                 " left of %" PRIu64 "; ask for more by its models, mode or share",
                 bytes, left * sizes_.chunk_bytes, tenant.reserved * sizes_.chunk_bytes);
  tenant.admitted += wanted;
  return {};
}

void ChunkStateManager::refund(TenantId id, std::uint64_t bytes) {
  if (const auto tenant = tenants_.find(id); tenant != tenants_.end())
    tenant->second.admitted -= std::min(tenant->second.admitted, chunks_of(bytes));
}

Status ChunkStateManager::add_model(ModelId model, TenantId tenant,
                                    std::vector<SegmentSpec> segments, bool park_commits) {
  if (models_.contains(model))
    return error(Code::EXISTS, "model %" PRIu64 " is known already", model.value);
  ModelRecord record;
  record.tenant = tenant;
  record.segments = std::move(segments);
  record.park_commits = park_commits;
  record.manifest.model = model;
  PLEXRL_TRY(check_segments(record));
  PLEXRL_TRY(continue_stored(model, record));
  PLEXRL_TRY(admit(model, record));
  stored_.erase(model);
  models_.emplace(model, std::move(record));
  return {};
}

Status ChunkStateManager::check_segments(const ModelRecord& record) const {
  std::set<SegmentKind> kinds;
  if (record.segments.size() > kMaxSegments)
    return error(Code::INVALID_ARGUMENT, "%zu segments, a model has at most %zu",
                 record.segments.size(), kMaxSegments);
  for (const SegmentSpec& spec : record.segments) {
    if (!kinds.insert(spec.kind).second || spec.kind == SegmentKind::kKv || spec.bytes == 0)
      return error(Code::INVALID_ARGUMENT, "segment %s: twice, empty, or not the model's own",
                   kind_name(spec.kind));
    const std::uint64_t device = std::uint64_t{device_.size()} * sizes_.chunk_bytes;
    if (spec.bytes > device)
      return error(Code::NO_CAPACITY, "segment %s needs %" PRIu64 " bytes, the device has %" PRIu64,
                   kind_name(spec.kind), spec.bytes, device);
  }
  return {};
}

Status ChunkStateManager::admit(ModelId model, ModelRecord& record) {
  if (!record.tenant) return {};
  const auto tenant = tenants_.find(record.tenant);
  PLEXRL_CHECK(tenant != tenants_.end(), "a model of a tenant that is not open");
  if (record.park_commits && disk_ != nullptr)
    return error(Code::NO_CAPACITY,
                 "model %" PRIu64
                 ": with a disk tier the job's host memory must hold the committed state twice",
                 model.value);
  std::uint64_t wanted = 0;
  for (const SegmentSpec& spec : record.segments)
    wanted += chunks_of(spec.bytes) * (spec.committed && !record.park_commits ? 2 : 1);
  const std::uint64_t admitted = tenant->second.admitted;
  const std::uint64_t left = tenant->second.reserved - std::min(tenant->second.reserved, admitted);
  if (wanted > left)
    return error(Code::NO_CAPACITY,
                 "model %" PRIu64 " needs %" PRIu64 " bytes of host memory, the job has %" PRIu64
                 " left of %" PRIu64 "; ask for fewer models or a lower rank",
                 model.value, wanted * sizes_.chunk_bytes, left * sizes_.chunk_bytes,
                 tenant->second.reserved * sizes_.chunk_bytes);
  tenant->second.admitted += wanted;
  record.admitted_chunks = wanted;
  return {};
}

Status ChunkStateManager::continue_stored(ModelId model, ModelRecord& record) {
  std::string why;
  if (const auto damaged = damaged_.find(model); damaged != damaged_.end()) why = damaged->second;
  if (const auto stored = stored_.find(model); stored != stored_.end()) {
    record.manifest = stored->second;
    for (const auto& entry : record.manifest.entries) {
      const SegmentSpec* spec = record.find(entry.kind);
      const bool in_host = entry.host.size() == chunks_of(entry.bytes);
      if (spec == nullptr || !spec->committed || spec->bytes != entry.bytes ||
          (!entry.blob && !in_host))
        why = std::string("manifest: segment ") + kind_name(entry.kind) + " has another size";
    }
    for (const SegmentSpec& spec : record.segments)
      if (spec.committed && record.committed(spec.kind) == nullptr &&
          !ModelRecord::holds_nothing(spec.kind, record.manifest.position))
        why = std::string("manifest: segment ") + kind_name(spec.kind) + " is missing";
  }
  if (!why.empty()) {
    erase_stored(model, all_chunks(record.manifest), all_blobs(record.manifest));
    return error(Code::CORRUPT, "model %" PRIu64 ": %s; load a checkpoint", model.value,
                 why.c_str());
  }
  record.last_epoch = record.manifest.epoch;
  record.now = record.manifest.position;
  return {};
}

void ChunkStateManager::remove_model(ModelId model) {
  const auto found = models_.find(model);
  if (found == models_.end()) {
    const auto stored = stored_.find(model);
    if (stored != stored_.end())
      return erase_stored(model, all_chunks(stored->second), all_blobs(stored->second));
    if (damaged_.contains(model)) erase_stored(model, {}, {});
    return;
  }
  ModelRecord& record = found->second;
  drop_requests(model);
  Chunks chunks = all_chunks(record.manifest);
  std::vector<BlobId> blobs = all_blobs(record.manifest);
  if (record.flip) {
    for (const auto& entry : record.copy->entries)
      chunks.insert(chunks.end(), entry.host.begin(), entry.host.end());
    record.copy.reset();
  }
  drop_copy(record, false);
  drop_gradients(record);
  drop_kv(record);
  drop_retired_kv(record);
  unmap_all(record);
  chunks.insert(chunks.end(), record.doubtful.begin(), record.doubtful.end());
  blobs.insert(blobs.end(), record.doubtful_blobs.begin(), record.doubtful_blobs.end());
  if (const auto found_transfer = transfers_.find(model); found_transfer != transfers_.end())
    orphan(found_transfer->second, blobs);
  if (!chunks.empty() || !blobs.empty() || record.in_doubt) erase_stored(model, chunks, blobs);
  if (record.tenant) tenants_.at(record.tenant).admitted -= record.admitted_chunks;
  const auto parking = std::move(record.parking);
  models_.erase(found);
  if (parking)
    parking->flipped(error(Code::CANCELLED, "model %" PRIu64 " was removed", model.value));
}

std::uint64_t ChunkStateManager::device_bytes(ModelId model) const {
  std::uint64_t chunks = 0;
  for (const SegmentSpec& spec : at(model).segments) chunks += chunks_of(spec.bytes);
  return chunks * sizes_.chunk_bytes;
}

// ---- resume ----

Result<MovePlan> ChunkStateManager::plan_resume(ModelId model) {
  ModelRecord& record = at(model);
  PLEXRL_CHECK(record.tier == Tier::kParked && !record.flip,
               "resume of a model that is not parked");
  MovePlan plan;
  plan.model = model;
  plan.epoch = record.manifest.epoch;
  plan.position = record.manifest.position;
  PLEXRL_CHECK(disk_ == nullptr || to_fetch(record).empty(), "a resume that was not prepared");
  plan.position.gradients_pending = !record.gradients.empty();
  PLEXRL_TRY(map_all(model, record, plan));
  record.tier = Tier::kResuming;
  return plan;
}

Status ChunkStateManager::map_all(ModelId model, ModelRecord& record, MovePlan& plan) {
  const std::uint64_t own = device_bytes(model) / sizes_.chunk_bytes;
  const std::uint64_t kv = record.kv ? chunks_of(record.kv->bytes) : 0;
  if (own + kv > device_.free())
    return error(Code::NO_CAPACITY,
                 "model %" PRIu64 " needs %" PRIu64 " bytes of device memory, %" PRIu64 " are free",
                 model.value, (own + kv) * sizes_.chunk_bytes, device_.free() * sizes_.chunk_bytes);
  for (const SegmentSpec& spec : record.segments) {
    Chunks& device = record.device[spec.kind];
    device = *device_.allocate(chunks_of(spec.bytes));
    Chunks host;
    if (const auto* entry = record.committed(spec.kind)) host = entry->host;
    if (spec.kind == SegmentKind::kGradients) host = record.gradients;
    plan.segments.push_back(move_of(spec, device, std::move(host)));
  }
  if (!record.kv) return {};
  record.kv->device = *device_.allocate(kv);
  plan.segments.push_back({SegmentKind::kKv, record.kv->bytes, record.kv->device, record.kv->host});
  return {};
}

void ChunkStateManager::unmap_all(ModelRecord& record) {
  for (const auto& [kind, chunks] : record.device) device_.give_back(chunks);
  record.device.clear();
  if (record.kv) {
    device_.give_back(record.kv->device);
    record.kv->device.clear();
  }
  record.tier = Tier::kParked;
}

void ChunkStateManager::resume_done(ModelId model) {
  ModelRecord& record = at(model);
  PLEXRL_CHECK(record.tier == Tier::kResuming, "a resume ended that was not planned");
  record.tier = Tier::kResident;
  record.last_used = ++uses_;
  record.now = record.manifest.position;
  record.now.gradients_pending = !record.gradients.empty();
  drop_gradients(record);
  drop_kv_host(record);
  drop_leaving_kv(record);
}

void ChunkStateManager::resume_failed(ModelId model) {
  ModelRecord& record = at(model);
  PLEXRL_CHECK(record.tier == Tier::kResuming, "a resume ended that was not planned");
  unmap_all(record);
  drop_leaving_kv(record);
  wake();
}

void ChunkStateManager::drop_gradients(ModelRecord& record) {
  drop_parked(record, SegmentKind::kGradients, record.gradients, record.gradients_blob);
}

void ChunkStateManager::mark_dirty(ModelId model, const Position& now) {
  ModelRecord& record = at(model);
  PLEXRL_CHECK(record.tier == Tier::kResident, "a model changed that is not resident");
  record.note(now);
}

// ---- suspend ----

Result<MovePlan> ChunkStateManager::plan_suspend(ModelId model) {
  ModelRecord& record = at(model);
  // The copy of a commit is made and holds all changes: only its manifest is on its way.
  const bool copied = record.flip && record.dirty.empty();
  if (record.tier != Tier::kResident || (record.copy && !copied))
    return error(Code::BUSY, "model %" PRIu64 " is moving or being committed", model.value);
  PLEXRL_TRY(park_extras(model, record));
  const Status status = copied ? Status() : plan_copy(model, record);
  if (!status.ok()) {
    drop_gradients(record);
    drop_kv_host(record);
    return status;
  }
  MovePlan plan;
  plan.model = model;
  plan.epoch = record.copy->epoch;
  for (const SegmentSpec& spec : record.segments) {
    Chunks host;
    for (const auto& entry : record.copy->entries)
      if (!copied && entry.kind == spec.kind) host = entry.host;
    if (spec.kind == SegmentKind::kGradients) host = record.gradients;
    plan.segments.push_back(move_of(spec, record.device.at(spec.kind), std::move(host)));
  }
  if (record.kv)
    plan.segments.push_back(
        {SegmentKind::kKv, record.kv->bytes, record.kv->device, record.kv->host});
  record.tier = Tier::kSuspending;
  return plan;
}

// Host chunks for what goes along without being committed: pending gradients and KV.
Status ChunkStateManager::park_extras(ModelId model, ModelRecord& record) {
  Status status;
  const SegmentSpec* gradients = record.find(SegmentKind::kGradients);
  if (gradients != nullptr && record.now.gradients_pending)
    record.gradients = take_host(chunks_of(gradients->bytes), status, "gradients");
  if (status.ok() && record.kv) {
    Tenant& tenant = tenants_.at(record.tenant);
    const std::uint64_t wanted = chunks_of(record.kv->bytes);
    // A model that was admitted since may have taken what parked KV has.
    const std::uint64_t used = tenant.admitted + tenant.kv;
    std::uint64_t left = tenant.reserved - std::min(tenant.reserved, used);
    if (disk_ != nullptr) left = std::min(left, disk_->kv_chunks());
    if (wanted > left) {
      status = error(Code::NO_CAPACITY,
                     "KV needs %" PRIu64 " bytes of host memory, the job has %" PRIu64 " left",
                     wanted * sizes_.chunk_bytes, left * sizes_.chunk_bytes);
    } else {
      record.kv->host = take_host(wanted, status, "KV");
      tenant.kv += record.kv->host.size();
    }
  }
  if (status.ok()) return {};
  drop_gradients(record);
  return status.within("model " + std::to_string(model.value));
}

void ChunkStateManager::suspend_done(ModelId model, const Position& position, Flipped flipped) {
  ModelRecord& record = at(model);
  PLEXRL_CHECK(record.tier == Tier::kSuspending, "a suspend ended that was not planned");
  unmap_all(record);
  drop_leaving_kv(record);
  if (record.flip) {
    record.parking = ModelRecord::Parking{position, std::move(flipped)};
    return;
  }
  settle_parked(model, record, position, std::move(flipped));
}

// It is off the device, and no manifest is on its way. Without a copy of its own the suspend
// counted on a commit; what that commit could not store is dirty again, and gone.
void ChunkStateManager::settle_parked(ModelId model, ModelRecord& record, const Position& position,
                                      Flipped flipped) {
  if (!record.copy && !record.dirty.empty()) {
    drop_gradients(record);
    parked_at_manifest(record);
    return flipped(
        error(Code::IO, "model %" PRIu64 ": the commit before could not be stored", model.value));
  }
  if (!record.copy) record.copy = ModelRecord::Copy{++record.last_epoch, {}};
  Position committed = position;
  committed.gradients_pending = false;
  const bool behind = record.manifest.epoch > 0 && committed != record.manifest.position;
  if (!record.copy->entries.empty() || behind)
    return flip(model, record, committed, std::move(flipped));
  drop_copy(record, false);
  parked_at_manifest(record);
  flipped({});
}

void ChunkStateManager::parked_at_manifest(ModelRecord& record) {
  record.dirty.clear();
  record.now = record.manifest.position;
  record.now.gradients_pending = record.gradients_parked();
  wake();
}

void ChunkStateManager::suspend_failed(ModelId model) {
  ModelRecord& record = at(model);
  PLEXRL_CHECK(record.tier == Tier::kSuspending, "a suspend ended that was not planned");
  record.tier = Tier::kResident;
  if (!record.flip) drop_copy(record, true);
  drop_gradients(record);
  drop_kv_host(record);
  drop_leaving_kv(record);
  wake();
}

// ---- commit ----

Result<MovePlan> ChunkStateManager::plan_commit(ModelId model) {
  ModelRecord& record = at(model);
  if (record.tier != Tier::kResident || record.copy)
    return error(Code::BUSY, "model %" PRIu64 " is moving or being committed", model.value);
  if (record.dirty.empty())
    return error(Code::NOT_FOUND, "model %" PRIu64 " has nothing to commit", model.value);
  if (record.park_commits)
    return error(Code::NO_CAPACITY, "model %" PRIu64 " is committed when it is parked",
                 model.value);
  PLEXRL_TRY(plan_copy(model, record));
  MovePlan plan;
  plan.model = model;
  plan.epoch = record.copy->epoch;
  for (const auto& entry : record.copy->entries)
    plan.segments.push_back({entry.kind, entry.bytes, record.device.at(entry.kind), entry.host});
  return plan;
}

void ChunkStateManager::commit_done(ModelId model, std::uint64_t epoch, const Position& position,
                                    Flipped flipped) {
  ModelRecord& record = at(model);
  PLEXRL_CHECK(record.tier == Tier::kResident && record.copy && !record.flip,
               "a commit ended that was not planned");
  if (epoch == record.copy->epoch) return flip(model, record, position, std::move(flipped));
  const std::uint64_t planned = record.copy->epoch;
  drop_copy(record, true);
  flipped(error(Code::PROTOCOL, "model %" PRIu64 ": epoch %" PRIu64 " was committed, not %" PRIu64,
                model.value, epoch, planned));
}

void ChunkStateManager::commit_failed(ModelId model) {
  ModelRecord& record = at(model);
  PLEXRL_CHECK(record.copy && !record.flip, "a commit ended that was not planned");
  drop_copy(record, true);
  wake();
}

// ---- copies ----

// The dirty flags pass to the copy: what changes while it is made is dirty again.
Status ChunkStateManager::plan_copy(ModelId model, ModelRecord& record) {
  PLEXRL_TRY(settle_doubt(model, record));
  record.copy = ModelRecord::Copy{record.last_epoch + 1, {}};
  Status status = allocate_shadow(model, record);
  if (status.code() == Code::NO_CAPACITY && record.park_commits)
    status = recycle_copy(model, record);
  if (!status.ok()) {
    drop_copy(record, false);
    return status;
  }
  ++record.last_epoch;
  record.dirty.clear();
  return {};
}

Status ChunkStateManager::allocate_shadow(ModelId model, ModelRecord& record) {
  const auto wanted = record.to_copy();
  std::uint64_t chunks = 0;
  for (const SegmentSpec& spec : wanted) chunks += chunks_of(spec.bytes);
  // With park_commits the shadow is not in the reservation, and must not be taken from others'.
  if (chunks > 0 && record.park_commits && record.manifest.epoch > 0)
    return error(Code::NO_CAPACITY, "model %" PRIu64 " has no shadow", model.value);
  Status status;
  for (const SegmentSpec& spec : wanted)
    if (status.ok())
      record.copy->entries.push_back(
          {spec.kind,
           spec.bytes,
           take_host(chunks_of(spec.bytes), status, kind_name(spec.kind)),
           {}});
  return status.ok() ? status : status.within("model " + std::to_string(model.value));
}

// Without a shadow the only copy is written over. Until that is done nothing is committed, and the
// store must say so before the first byte changes.
Status ChunkStateManager::recycle_copy(ModelId model, ModelRecord& record) {
  for (const auto& entry : record.copy->entries) host_.give_back(entry.host);
  record.copy->entries.clear();
  PLEXRL_TRY(store_.erase(kManifestTable, model.value, kManifestSubkey)
                 .within("model " + std::to_string(model.value)));
  record.copy->entries = std::move(record.manifest.entries);
  record.manifest = Manifest{model, 0, {}, {}};
  return {};
}

void ChunkStateManager::drop_copy(ModelRecord& record, bool dirty_again) {
  if (!record.copy) return;
  for (const auto& entry : record.copy->entries) {
    host_.give_back(entry.host);
    if (dirty_again) record.dirty.insert(entry.kind);
  }
  record.copy.reset();
}

Chunks ChunkStateManager::take_host(std::uint64_t count, Status& status, const char* what) {
  auto chunks = host_.allocate(count);
  if (chunks) return std::move(*chunks);
  status =
      error(Code::NO_CAPACITY, "%s needs %" PRIu64 " bytes of host memory, %" PRIu64 " are free",
            what, count * sizes_.chunk_bytes, host_.free() * sizes_.chunk_bytes);
  return {};
}

// ---- losses and restarts ----

Position ChunkStateManager::engine_lost(ModelId model) {
  ModelRecord& record = at(model);
  PLEXRL_CHECK(!record.flip, "a manifest is on its way to the disk: settle the store first");
  drop_copy(record, false);
  drop_gradients(record);
  drop_kv(record);
  drop_retired_kv(record);
  unmap_all(record);
  record.pinned = false;
  record.dirty.clear();
  record.now = record.manifest.position;
  drop_requests(model);
  wake();
  return record.now;
}

Status ChunkStateManager::adopt(ModelId model, const std::vector<SegmentMove>& held,
                                const Position& position) {
  ModelRecord& record = at(model);
  PLEXRL_CHECK(record.tier == Tier::kParked, "adoption of a model that is not parked");
  const auto refuse = [&](SegmentKind kind, const char* why) {
    for (const auto& [taken, chunks] : record.device) device_.give_back(chunks);
    record.device.clear();
    return error(Code::PROTOCOL, "the engine holds model %" PRIu64 " with segment %s %s",
                 model.value, kind_name(kind), why);
  };
  for (const SegmentMove& move : held) {
    if (move.kind == SegmentKind::kKv) continue;
    const SegmentSpec* spec = record.find(move.kind);
    if (spec == nullptr || spec->bytes != move.bytes || record.device.contains(move.kind) ||
        move.device.size() != chunks_of(move.bytes))
      return refuse(move.kind, "of another shape");
    if (!device_.take(move.device)) return refuse(move.kind, "on chunks that are taken");
    record.device[move.kind] = move.device;
  }
  for (const SegmentSpec& spec : record.segments)
    if (!record.device.contains(spec.kind)) return refuse(spec.kind, "missing");
  record.tier = Tier::kResident;
  if (position != record.manifest.position)
    for (const SegmentSpec& spec : record.segments)
      if (spec.committed) record.dirty.insert(spec.kind);
  record.now = position;
  return {};
}

const Manifest* ChunkStateManager::manifest(ModelId model) const {
  const auto found = models_.find(model);
  return found == models_.end() ? nullptr : &found->second.manifest;
}

ModelRecord& ChunkStateManager::at(ModelId model) {
  const auto found = models_.find(model);
  PLEXRL_CHECK(found != models_.end(), "a model that was not added");
  return found->second;
}

const ModelRecord& ChunkStateManager::at(ModelId model) const {
  return const_cast<ChunkStateManager*>(this)->at(model);
}

std::uint64_t ChunkStateManager::chunks_of(std::uint64_t bytes) const {
  return bytes / sizes_.chunk_bytes + (bytes % sizes_.chunk_bytes != 0 ? 1 : 0);
}

}  // namespace plexrl::state
