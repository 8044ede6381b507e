// SPDX-License-Identifier: Apache-2.0
#include "api/metrics_text.h"

#include <cinttypes>
#include <cstdio>

namespace plexrl::api {
namespace {

class Text {
 public:
  void family(const char* name, const char* type, const char* help) {
    name_ = name;
    out_ += std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
  }
  void value(const std::string& labels, double number) {
    char text[64];
    std::snprintf(text, sizeof text, " %.9g\n", number);
    out_ += name_ + labels + text;
  }
  [[nodiscard]] std::string take() { return std::move(out_); }

 private:
  std::string name_;
  std::string out_;
};

struct JobMetric {
  const char* name;
  const char* help;
  double (*read)(const runtime::TenantTotals&);
};

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

constexpr JobMetric kJobMetrics[] = {
    {"plexrl_job_device_seconds_total", "Time in which an op of the job ran.",
     [](const runtime::TenantTotals& t) { return seconds(t.device_ns); }},
    {"plexrl_job_wait_others_seconds_total", "Time with ops queued while another job's op ran.",
     [](const runtime::TenantTotals& t) { return seconds(t.wait_others_ns); }},
    {"plexrl_job_switch_seconds_total", "Time with ops queued while state was moved.",
     [](const runtime::TenantTotals& t) { return seconds(t.switch_ns); }},
    {"plexrl_job_switch_hidden_seconds_total",
     "Time in which state of the job was moved while an op ran.",
     [](const runtime::TenantTotals& t) { return seconds(t.switch_hidden_ns); }},
    {"plexrl_job_commit_stall_seconds_total", "Time in which ops waited for a commit's copy.",
     [](const runtime::TenantTotals& t) { return seconds(t.commit_stall_ns); }},
    {"plexrl_job_commits_total", "Commits of the job's models.",
     [](const runtime::TenantTotals& t) { return static_cast<double>(t.commits); }},
    {"plexrl_job_replayed_ops_total", "Training ops that were run again in a recovery.",
     [](const runtime::TenantTotals& t) { return static_cast<double>(t.replayed_ops); }},
};

void add_jobs(Text& text, runtime::NodeRuntime& node, const Viewer& viewer) {
  for (const JobMetric& metric : kJobMetrics) {
    text.family(metric.name, "counter", metric.help);
    for (const auto& [id, tenant] : node.tenants().all()) {
      const auto* totals = node.accounting().find(id);
      if (totals == nullptr || !viewer.sees(tenant)) continue;
      text.value("{job=\"" + std::to_string(tenant.job_id) + "\"}", metric.read(*totals));
    }
  }
}

void add_engines(Text& text, runtime::NodeRuntime& node) {
  text.family("plexrl_engine_up", "gauge", "Whether the engine answers.");
  for (const auto& [id, row] : node.models().engines())
    text.value("{engine=\"" + std::to_string(id.value) + "\"}", node.engines().ready(id) ? 1 : 0);
  text.family("plexrl_engine_pinned_bytes", "gauge",
              "Host memory that the engine has registered with its device; 0 on the CPU.");
  for (const auto& [id, row] : node.models().engines())
    text.value("{engine=\"" + std::to_string(id.value) + "\"}",
               static_cast<double>(node.engines().view(id).pinned_bytes));
  text.family("plexrl_engine_restarts_total", "counter", "Starts after an engine's end.");
  for (const auto& [id, row] : node.models().engines())
    text.value("{engine=\"" + std::to_string(id.value) + "\"}", node.engines().view(id).restarts);
}

}  // namespace

std::string metrics_text(runtime::NodeRuntime& node, const ServerCounts& server,
                         const Viewer& viewer) {
  Text text;
  text.family("plexrl_connections", "gauge", "Open client connections.");
  text.value("", static_cast<double>(server.connections));
  text.family("plexrl_protocol_errors_total", "counter", "Connections closed for what they sent.");
  text.value("", static_cast<double>(server.protocol_errors));
  text.family("plexrl_connections_refused_total", "counter", "Connections over a bound.");
  text.value("", static_cast<double>(server.refused));
  text.family("plexrl_ops_outstanding", "gauge", "Ops without a result.");
  text.value("", static_cast<double>(node.ops().all().size()));
  text.family("plexrl_lease_held", "gauge", "Whether a lease has the device group.");
  text.value("", node.lease_service().holder() ? 1 : 0);
  text.family("plexrl_leases_stopped_total", "counter",
              "Leases whose processes were stopped because they did not yield.");
  text.value("", static_cast<double>(node.lease_service().stops()));
  text.family("plexrl_device_strangers", "gauge", "Processes that use the device without a lease.");
  text.value("", static_cast<double>(node.device_watch().strangers().size()));
  text.family("plexrl_device_strangers_total", "counter", "Such processes, in all.");
  text.value("", static_cast<double>(node.device_watch().found()));
  add_engines(text, node);
  add_jobs(text, node, viewer);
  return text.take();
}

}  // namespace plexrl::api
