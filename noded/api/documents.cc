// SPDX-License-Identifier: Apache-2.0
#include "api/documents.h"

#include <pwd.h>
#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>
#include <vector>

#include "api/explain.h"
#include "api/metrics_text.h"
#include "base/name_buffer.h"
#include "config.h"

namespace plexrl::api {
namespace {

using nlohmann::json;
using runtime::Model;
using runtime::NodeRuntime;
using runtime::Op;
using runtime::op_kind_name;
using runtime::op_state_name;
using runtime::OpState;
using runtime::Tenant;
using runtime::TenantTotals;

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

std::string user_name(std::uint32_t uid) {
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> buffer;
  const int failure = with_growing_buffer(&buffer, [&](char* data, std::size_t size) {
    return ::getpwuid_r(uid, &entry, data, size, &found);
  });
  return failure == 0 && found != nullptr ? found->pw_name : std::to_string(uid);
}

const char* mode_name(wire::TrainMode mode) {
  constexpr std::array<const char*, 3> names{"none", "lora", "full"};
  const auto index = static_cast<std::size_t>(mode);
  return index < names.size() ? names[index] : "unknown";
}

json engine_json(NodeRuntime& node, const runtime::EngineRow& row) {
  const auto view = node.engines().view(row.id);
  using State = runtime::EngineSupervisor::State;
  const char* state = view.state == State::kUp         ? "up"
                      : view.state == State::kStarting ? "starting"
                                                       : "down";
  if (view.failing && view.state != State::kUp) state = "failed";
  return {{"engine", row.id.value},
          {"base", row.base},
          {"mode", mode_name(row.mode)},
          {"state", state},
          {"pid", view.pid},
          {"restarts", view.restarts},
          {"error", view.error},
          {"pinned_bytes", view.pinned_bytes}};
}

void add_times(json& row, const runtime::ModelTotals& totals) {
  row["switch_exposed_s"] = seconds(totals.switch_exposed_ns);
  row["switch_hidden_s"] = seconds(totals.switch_hidden_ns);
  row["training_s"] = seconds(totals.training_ns);
  row["commit_stall_s"] = seconds(totals.commit_stall_ns);
  row["commit_stall_share"] = totals.commit_stall_share();
}

json model_json(NodeRuntime& node, const Model& model) {
  const auto& flow = node.flows().at(model.id);
  const auto* manifest = node.state().manifest(model.id);
  const char* state = model.lost ? "lost" : flow.recovering() ? "recovering" : "ready";
  json row{{"model", model.id.value},
           {"name", model.name},
           {"base", model.base},
           {"mode", mode_name(model.mode)},
           {"lora_rank", model.lora_rank},
           {"step", model.position.step},
           {"next_seq", flow.stream.next_seq()},
           {"latest_version", model.latest_version},
           {"committed_seq", manifest == nullptr ? 0 : manifest->position.applied_seq},
           {"resident", model.resident},
           {"state", state}};
  add_times(row, node.accounting().model(model.id));
  return row;
}

// The table of what is where, with what its moves and commits cost each model.
json memory_json(NodeRuntime& node) {
  json memory = json::parse(node.state().table_json());
  for (auto& row : memory.at("models"))
    add_times(row, node.accounting().model(ModelId{row.at("model").get<std::uint64_t>()}));
  return memory;
}

std::uint64_t ops_done(const TenantTotals& totals) {
  std::uint64_t count = 0;
  for (const auto& kind : totals.kinds) count += kind.count;
  return count;
}

// What the scheduler decides by; null while the job has no model and no lease.
json learnt_json(NodeRuntime& node, TenantId tenant) {
  const auto view = node.dispatcher().learnt(tenant);
  if (!view) return nullptr;
  return {{"busy", view->busy_permille / 1000.0},
          {"slowdown", view->slowdown_permille / 1000.0},
          {"slowdown_bound", view->bound_permille / 1000.0},
          {"bound_violations", view->violations}};
}

json job_json(NodeRuntime& node, const Server& server, const Tenant& tenant) {
  const TenantTotals none;
  const TenantTotals* const found = node.accounting().find(tenant.id);
  const TenantTotals& totals = found == nullptr ? none : *found;
  const std::size_t running = node.ops().running(tenant.id);
  json models = json::array();
  for (const Model* model : node.models().of_tenant(tenant.id))
    models.push_back(model_json(node, *model));
  return {{"job_id", tenant.job_id},
          {"uid", tenant.uid},
          {"user", user_name(tenant.uid)},
          {"state", tenant.open() ? "open" : "closed"},
          {"incarnation", tenant.incarnation},
          {"share_percent", tenant.grant.share_percent},
          {"host_memory_mib", tenant.grant.host_memory_mib},
          {"train_mode", tenant.grant.train_mode},
          {"live_tasks", node.tasks().live(tenant.id)},
          {"connections", server.connections_of(tenant.id)},
          {"open_s", seconds(node.clock().now().ns - tenant.opened.ns)},
          {"ops_queued", node.ops().count(tenant.id) - running},
          {"ops_running", running},
          {"ops_done", ops_done(totals)},
          {"device_s", seconds(totals.device_ns)},
          {"switch_s", seconds(totals.switch_ns)},
          {"switch_exposed_s", seconds(totals.switch_ns)},
          {"switch_hidden_s", seconds(totals.switch_hidden_ns)},
          {"wait_others_s", seconds(totals.wait_others_ns)},
          {"slowdown_estimate", totals.slowdown()},
          {"learnt", learnt_json(node, tenant.id)},
          {"models", models}};
}

json op_json(NodeRuntime& node, const Op& op, const Tenant& tenant) {
  const std::int64_t now = node.clock().now().ns;
  // What rides with another one is where that is.
  const Op* const leader = op.leader ? node.ops().find(op.leader) : nullptr;
  const Op& moves = leader != nullptr ? *leader : op;
  const std::int64_t run =
      moves.run_ns + (moves.state == OpState::kRunning ? now - moves.running_since.ns : 0);
  const Model* const model = node.models().find(op.model);
  return {{"op", op.id.value},
          {"job_id", tenant.job_id},
          {"user", user_name(tenant.uid)},
          {"model", model == nullptr ? "" : model->name},
          {"kind", op_kind_name(op.kind)},
          {"seq", op.seq},
          {"state", op_state_name(moves.state)},
          {"age_s", seconds(now - op.accepted.ns)},
          {"run_s", seconds(run)},
          {"client", op.client},
          {"why", explain(node, op)}};
}

json kinds_json(const TenantTotals& totals) {
  json kinds = json::object();
  for (std::size_t i = 1; i < totals.kinds.size(); ++i) {
    const auto& kind = totals.kinds[i];
    if (kind.count == 0) continue;
    kinds[op_kind_name(static_cast<core::OpKind>(i))] = {{"count", kind.count},
                                                         {"failed", kind.failed},
                                                         {"tokens", kind.tokens},
                                                         {"run_s", seconds(kind.run_ns)},
                                                         {"queued_s", seconds(kind.queued_ns)}};
  }
  return kinds;
}

json lease_json(NodeRuntime& node) {
  const auto view = node.lease_service().holder();
  if (!view) return nullptr;
  const Tenant* const tenant = node.tenants().find(view->tenant);
  return {{"lease", view->lease.value},
          {"job_id", tenant == nullptr ? 0 : tenant->job_id},
          {"state", view->state},
          {"device_bytes", view->device_bytes},
          {"held_s", seconds(node.clock().now().ns - view->since.ns)},
          {"processes", view->processes},
          {"pids", view->pids},
          {"stopping_s", seconds(view->stopping_ns)},
          {"trouble", view->trouble}};
}

json strangers_json(NodeRuntime& node) {
  json list = json::array();
  for (const auto& [pid, uid] : node.device_watch().strangers())
    list.push_back({{"pid", pid}, {"uid", uid}, {"user", user_name(uid)}});
  return list;
}

// Text that a client gave may hold any bytes; they are replaced, never refused.
std::string dump(const json& document) {
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::uint64_t resident_bytes(NodeRuntime& node) {
  std::uint64_t bytes = 0;
  for (const auto& [id, model] : node.models().all())
    if (model.resident) bytes += node.state().device_bytes(id);
  for (const auto& [id, row] : node.models().engines())
    if (row.base_known && row.base_resident) bytes += node.state().device_bytes(row.base_model);
  return bytes;
}

json times_json(const runtime::DeviceTotals& totals) {
  return {{"busy_s", seconds(totals.busy_ns)},
          {"switch_exposed_s", seconds(totals.switch_exposed_ns)},
          {"switch_hidden_s", seconds(totals.switch_hidden_ns)}};
}

}  // namespace

std::string Documents::status(const Viewer& viewer) {
  const auto counts = server_.counts();
  const auto& sizes = node_.pool_sizes();
  json engines = json::array();
  for (const auto& [id, row] : node_.models().engines()) engines.push_back(engine_json(node_, row));
  std::size_t jobs_open = 0;
  std::uint64_t reserved_mib = 0;
  for (const auto& [id, tenant] : node_.tenants().all()) {
    if (tenant.open()) ++jobs_open;
    reserved_mib += tenant.grant.host_memory_mib;
  }
  std::size_t running = 0;
  for (const auto& [id, op] : node_.ops().all()) running += op.state == OpState::kRunning ? 1 : 0;
  json document{{"version", PACKAGE_VERSION},
                {"node", node_.options().node},
                {"pool", node_.pool().name},
                {"models", node_.pool().models},
                {"cluster", node_.config().cluster},
                {"state", node_.draining() ? "draining" : "ready"},
                {"uptime_s", seconds(node_.clock().now().ns - node_.started().ns)},
                {"pid", ::getpid()},
                {"policy", node_.pool().policy},
                {"device",
                 {{"capacity_bytes", sizes.chunk_bytes * sizes.device_chunks},
                  {"resident_bytes", resident_bytes(node_)},
                  {"activation_bytes", node_.pool().activation_memory_mib << 20}}},
                {"host",
                 {{"capacity_bytes", sizes.chunk_bytes * sizes.host_chunks},
                  {"reserved_bytes", reserved_mib << 20}}},
                {"times", times_json(node_.accounting().device())},
                {"engines", engines},
                {"lease", lease_json(node_)},
                {"leases_stopped", node_.lease_service().stops()},
                {"jobs_open", jobs_open},
                {"ops_queued", node_.ops().all().size() - running},
                {"ops_running", running},
                {"connections", counts.connections},
                {"protocol_errors", counts.protocol_errors}};
  if (viewer.admin) document["strangers"] = strangers_json(node_);
  if (viewer.admin) document["memory"] = memory_json(node_);
  return dump(document);
}

std::string Documents::jobs(const Viewer& viewer) {
  json list = json::array();
  for (const auto& [id, tenant] : node_.tenants().all())
    if (viewer.sees(tenant)) list.push_back(job_json(node_, server_, tenant));
  return dump({{"jobs", list}});
}

std::string Documents::ops(const Viewer& viewer) {
  json list = json::array();
  for (const auto& [id, op] : node_.ops().all()) {
    const Tenant* const tenant = node_.tenants().find(op.tenant);
    if (tenant != nullptr && viewer.sees(*tenant)) list.push_back(op_json(node_, op, *tenant));
  }
  return dump({{"ops", list}});
}

Result<std::string> Documents::report(std::uint32_t job_id, const Viewer& viewer) {
  const Tenant* const tenant = node_.tenants().find_job(job_id);
  // Whether somebody else's job is here is nobody's business.
  if (tenant == nullptr || !viewer.sees(*tenant))
    return error(Code::NOT_FOUND, "job %u is not on this node, or not yours", job_id);
  const TenantTotals none;
  const TenantTotals* const found = node_.accounting().find(tenant->id);
  const TenantTotals& totals = found == nullptr ? none : *found;
  json document = job_json(node_, server_, *tenant);
  document["ops_by_kind"] = kinds_json(totals);
  document["wall_s"] = seconds(totals.wall_ns);
  document["replayed_ops"] = totals.replayed_ops;
  document["commits"] = totals.commits;
  document["commit_stall_s"] = seconds(totals.commit_stall_ns);
  return dump(document);
}

std::string Documents::metrics(const Viewer& viewer, const std::string& more) {
  return dump({{"text", metrics_text(node_, server_.counts(), viewer) + more}});
}

std::string Documents::profiles(const Viewer& viewer) {
  json list = json::array();
  for (const auto& [key, profile] : node_.profile_book().profiles()) {
    if (!viewer.admin && key.uid != viewer.uid) continue;
    list.push_back({{"uid", key.uid},
                    {"user", user_name(key.uid)},
                    {"pool", key.pool},
                    {"name", key.name},
                    {"train_mode", key.train_mode},
                    {"models", key.models},
                    {"runs", profile.runs},
                    {"busy_percent", profile.busy_percent},
                    {"rollout_percent", profile.rollout_percent},
                    {"training_percent", profile.training_percent},
                    {"share_percent", slurm::learnt_share(profile)}});
  }
  return dump({{"profiles", list}});
}

Result<std::string> Documents::answer(const wire::QueryT& query, const Viewer& viewer,
                                      const std::string& more_metrics) {
  node_.accounting().advance(node_.clock().now());
  switch (query.kind) {
    case wire::QueryKind::Status:
      return status(viewer);
    case wire::QueryKind::Jobs:
      return jobs(viewer);
    case wire::QueryKind::Ops:
      return ops(viewer);
    case wire::QueryKind::Report:
      return report(query.job_id, viewer);
    case wire::QueryKind::Metrics:
      return metrics(viewer, more_metrics);
    case wire::QueryKind::Profiles:
      return profiles(viewer);
  }
  return error(Code::UNSUPPORTED, "query %d is not known here", static_cast<int>(query.kind));
}

}  // namespace plexrl::api
