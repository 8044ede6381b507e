// SPDX-License-Identifier: Apache-2.0
// Snapshot of the scheduler: magic, version, policy, models, engines, ops, what was learnt, what
// runs; then a CRC-32. Indices are rebuilt from it. A snapshot may come from a damaged file: it is
// checked, never trusted.
#include "base/check.h"
#include "core/device_scheduler.h"

namespace plexrl::core {
namespace {

constexpr std::string_view kMagic = "PXS4";
constexpr std::size_t kCrcBytes = 4;

Status damaged(const char* what) {
  return error(Code::CORRUPT, "scheduler snapshot: %s; start without it", what);
}

}  // namespace

Result<std::unique_ptr<Scheduler>> Scheduler::restore(const SchedulerConfig& config,
                                                      std::string_view snapshot) {
  PLEXRL_ASSIGN(auto scheduler, create(config));
  PLEXRL_TRY(static_cast<DeviceScheduler&>(*scheduler).load(snapshot));
  return scheduler;
}

std::string DeviceScheduler::snapshot() const {
  ByteWriter out;
  out.text(kMagic);
  out.text(policy_name_);
  encode_body(out);
  out.u32(crc32(out.bytes()));
  return out.take();
}

Status DeviceScheduler::load(std::string_view snapshot) {
  if (snapshot.size() < kCrcBytes) return damaged("too short");
  const std::string_view body = snapshot.substr(0, snapshot.size() - kCrcBytes);
  if (ByteReader(snapshot.substr(body.size())).u32() != crc32(body)) return damaged("checksum");
  ByteReader in(body);
  if (in.text() != kMagic) return damaged("not of this version");
  const std::string_view policy = in.text();
  if (in.ok() && policy != policy_name_)
    return error(Code::INVALID_ARGUMENT, "scheduler snapshot: taken under policy %s, not %s",
                 std::string(policy).c_str(), policy_name_.c_str());
  decode_body(in);
  if (!in.at_end()) return damaged("contradicts itself");
  rebuild();
  return {};
}

void DeviceScheduler::encode_body(ByteWriter& out) const {
  out.varint(static_cast<std::uint64_t>(now_.ns));
  models_.encode(out);
  out.varint(engines_.size());
  for (const auto& [id, engine] : engines_) {
    out.varint(id.value);
    out.flag(engine.up);
  }
  ops_.encode(out);
  policy_->encode(out);
  costs_.encode(out);
  ledger_.encode(out);
  out.varint(target_.value);
  out.varint(committed_.value);
  out.varint(static_cast<std::uint64_t>(charged_until_.ns));
  out.varint(running_.size());
  for (const auto& [id, running] : running_) {
    out.varint(id.value);
    out.varint(static_cast<std::uint64_t>(running.started.ns));
    out.flag(running.yield_asked);
  }
}

void DeviceScheduler::decode_body(ByteReader& in) {
  now_.ns = decode_duration(in).ns;
  models_.decode(in);
  if (!in.ok()) return;
  decode_engines(in);
  for (const auto& [id, entry] : models_.models())
    if (!entry.removed) ops_.add_model(id, entry.tenant);
  ops_.decode(in);
  if (!in.ok()) return;
  policy_->decode(in);
  costs_.decode(in);
  ledger_.decode(in);
  target_ = OpId{in.varint()};
  committed_ = ModelId{in.varint()};
  if (committed_ && models_.find(committed_) == nullptr) return in.fail();
  decode_running(in);
}

void DeviceScheduler::decode_engines(ByteReader& in) {
  for (std::uint64_t left = in.count(); left > 0 && in.ok(); --left) {
    const EngineId id{in.varint()};
    engines_[id].up = in.flag();
  }
  for (const auto& [id, entry] : models_.models()) {
    const auto engine = engines_.find(entry.engine);
    if (engine == engines_.end()) return in.fail();
    engine->second.models.insert(id);
  }
}

void DeviceScheduler::decode_running(ByteReader& in) {
  charged_until_.ns = static_cast<std::int64_t>(in.varint());
  if (charged_until_ > now_) return in.fail();
  for (std::uint64_t left = in.count(); left > 0 && in.ok(); --left) {
    Running running;
    running.op = OpId{in.varint()};
    running.started.ns = static_cast<std::int64_t>(in.varint());
    running.yield_asked = in.flag();
    const Op* op = ops_.find(running.op);
    const ModelEntry* model = op != nullptr ? models_.find(op->model) : nullptr;
    if (model == nullptr || op->queued || running.started.ns < 0 || running.started > now_)
      return in.fail();
    running.model = op->model;
    running.tenant = model->tenant;
    running.share_percent = model->share_percent;
    running.rows = op->rows;
    if (!running_.emplace(running.op, running).second) return in.fail();
  }
  if (!agree()) in.fail();
}

// One op runs, or a batch of one base, each in a model that is in use; started ops hold what their
// models count.
bool DeviceScheduler::agree() const {
  std::map<ModelId, std::uint64_t> held;
  for (const auto& [id, op] : ops_.all()) {
    if (!op.queued && !running_.contains(id)) return false;
    if (!op.started) continue;
    const ModelEntry* model = models_.find(op.model);
    std::uint64_t& sum = held[op.model];
    if (model == nullptr || op.device_bytes > model->kv_bytes - model->kv_leaving - sum)
      return false;
    sum += op.device_bytes;
  }
  std::set<ModelId> in_use;
  ModelId base;
  for (const auto& [id, running] : running_) {
    if (!in_use.insert(running.model).second) return false;
    if (running_.size() > 1 && !fits_batch(*ops_.find(id))) return false;
    const ModelId its = models_.at(running.model).base;
    if (std::exchange(base, its) != its && in_use.size() > 1) return false;
  }
  for (const auto& [id, entry] : models_.models())
    if (entry.in_use != in_use.contains(id)) return false;
  return running_.size() <= kMaxBatch;
}

void DeviceScheduler::rebuild() {
  for (const auto& [id, entry] : models_.models()) {
    if (entry.removed) removed_.insert(id);
    for (const TimePoint until : {entry.not_run_until, entry.not_evicted_until})
      if (until.ns != 0) pauses_.emplace(until, id);
  }
  for (const auto& [id, entry] : models_.models()) update_runnable(id);
}

}  // namespace plexrl::core
