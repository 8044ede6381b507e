// SPDX-License-Identifier: Apache-2.0
#include "cli/node_check_command.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "cli/bounded_command.h"
#include "cli/node_features.h"
#include "cli/output.h"
#include "cli/service_target.h"
#include "config/site_config.h"

namespace plexrl::cli {
namespace {

// slurmd kills the health check after 60 s; the question, three calls of scontrol and one of squeue
// fit in.
constexpr Duration kClientLimit{13 * kSecond.ns};
constexpr std::size_t kMaxClientBytes = 262144;

struct NodeCheckOptions {
  ServiceTarget target;
  std::string config;
  std::string node;
  std::string scontrol = "scontrol";
  std::string squeue = "squeue";
  bool json = false;
};

bool is_node_name(const std::string& name) {
  return !name.empty() && name.size() < 256 && name.front() != '-' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_';
         });
}

Result<std::string> own_node(const NodeCheckOptions& options) {
  std::string name = options.node;
  if (name.empty()) {
    std::array<char, 256> buffer{};
    if (::gethostname(buffer.data(), buffer.size() - 1) != 0)
      return errno_error(Code::IO, errno, "gethostname");
    name = buffer.data();
    name.resize(std::min(name.find('.'), name.size()));  // as slurmd names itself
  }
  if (!is_node_name(name))
    return error(Code::INVALID_ARGUMENT, "--node '%s' is not a node name", name.c_str());
  return name;
}

std::string shell_word(const std::string& text) { return "'" + text + "'"; }  // has no quotes

Result<std::string> client(const std::string& program, const std::string& arguments) {
  const std::string command = program + " " + arguments;
  auto result = run_bounded("exec " + command, "", kClientLimit, kMaxClientBytes);
  if (!result.has_value()) return result.error().within(command);
  if (result->exit_status != 0)
    return error(Code::IO, "%s: exit status %d", command.c_str(), result->exit_status);
  return std::move(result->output);
}

// Starting and draining count as alive: both are states that plexrld means to be in.
Status health(const NodeCheckOptions& options) {
  return ask(options.target, wire::QueryKind::Status).status();
}

Status apply(const NodeCheckOptions& options, const std::string& node, NodeAction action) {
  if (action == NodeAction::kNone) return {};
  const std::string change = action == NodeAction::kResume
                                 ? "State=RESUME"
                                 : "State=DRAIN Reason=" + shell_word(std::string(kDrainMark) +
                                                                      " plexrld does not answer");
  return client(options.scontrol, "update NodeName=" + shell_word(node) + " " + change).status();
}

// What the jobs of the node leave room for; nothing is asked or changed where the site has not
// given the node these features.
Result<std::optional<std::vector<config::JobKind>>> place(const NodeCheckOptions& options,
                                                          const std::string& node,
                                                          const std::string& pool,
                                                          const std::string& line) {
  using Kinds = std::optional<std::vector<config::JobKind>>;
  if (!has_pool_features(pool, line)) return Kinds();
  PLEXRL_ASSIGN(const std::string comments,
                client(options.squeue,
                       "--noheader --states=CONFIGURING,RUNNING,SUSPENDED,STOPPED"
                       " --Format=admin_comment:1024 --nodelist=" +
                           shell_word(node)));
  const auto welcome = welcome_kinds(comments);
  if (const auto wanted = wanted_features(pool, line, welcome); wanted)
    PLEXRL_TRY(client(options.scontrol, "update NodeName=" + shell_word(node) +
                                            " ActiveFeatures=" + shell_word(*wanted))
                   .status());
  return Kinds(welcome);
}

nlohmann::json names_of(const std::optional<std::vector<config::JobKind>>& kinds) {
  if (!kinds) return nullptr;
  nlohmann::json names = nlohmann::json::array();
  for (const config::JobKind kind : *kinds) names.push_back(config::job_kind_name(kind));
  return names;
}

const char* action_name(NodeAction action) {
  if (action == NodeAction::kDrain) return "drained";
  return action == NodeAction::kResume ? "resumed" : "none";
}

// Only an error of scontrol or of the configuration is a failure: slurmd would log every other one.
Status run_node_check(const NodeCheckOptions& options) {
  PLEXRL_ASSIGN(const std::string node, own_node(options));
  const std::string path = options.config.empty() ? config::default_config_path() : options.config;
  PLEXRL_ASSIGN(const auto site, config::load_site_config(path, true));
  const config::PoolEntry* const pool = site.pool_of_node(node);
  const bool in_pool = pool != nullptr;
  Status healthy;
  std::optional<std::vector<config::JobKind>> takes;
  NodeAction action = NodeAction::kNone;
  if (in_pool) {
    healthy = health(options);
    PLEXRL_ASSIGN(const std::string line,
                  client(options.scontrol, "show node --oneliner " + shell_word(node)));
    action = decide(healthy.ok(), line);
    PLEXRL_TRY(apply(options, node, action));
    PLEXRL_ASSIGN(takes, place(options, node, pool->name, line));
  }
  if (options.json)
    print_json({{"node", node},
                {"in_pool", in_pool},
                {"healthy", in_pool ? nlohmann::json(healthy.ok()) : nlohmann::json()},
                {"error", healthy.text()},
                {"action", action_name(action)},
                {"takes", names_of(takes)}});
  else if (!healthy.ok() || action != NodeAction::kNone)
    print_text(node + ": " + (healthy.ok() ? "plexrld answers" : healthy.text()) +
               "; action: " + action_name(action) + "\n");
  return {};
}

}  // namespace

NodeAction decide(bool healthy, std::string_view node_line) {
  const std::string_view state = scontrol_field(node_line, "State");
  const bool drained = state.find("DRAIN") != state.npos;
  const bool ours = scontrol_field(node_line, "Reason").starts_with(kDrainMark);
  if (!healthy && !drained) return NodeAction::kDrain;
  if (healthy && drained && ours) return NodeAction::kResume;
  return NodeAction::kNone;
}

void add_node_check(CLI::App& app, Run& chosen) {
  auto* command = app.add_subcommand(
      "node-check", "for HealthCheckProgram: drain this node while plexrld does not answer");
  auto options = std::make_shared<NodeCheckOptions>();
  options->target.timeout_s = 5.0;
  command->add_option("--config", options->config, "site file; default: /etc/plexrl/plexrl.yaml");
  command->add_option("--node", options->node, "name of the node; default: the host's");
  command->add_option("--scontrol", options->scontrol, "the scontrol program")
      ->capture_default_str();
  command->add_option("--squeue", options->squeue, "the squeue program")->capture_default_str();
  add_service_options(*command, options->target);
  add_json_option(*command, options->json);
  on_chosen(*command, chosen, options, run_node_check);
}

}  // namespace plexrl::cli
