// SPDX-License-Identifier: Apache-2.0
#include "cli/node_check_command.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "cli/bounded_command.h"
#include "cli/output.h"
#include "cli/service_target.h"
#include "config/site_config.h"

namespace plexrl::cli {
namespace {

// slurmd kills the health check after 60 s; two calls of scontrol and the question fit in.
constexpr Duration kScontrolLimit{15 * kSecond.ns};
constexpr std::size_t kMaxScontrolBytes = 65536;

struct NodeCheckOptions {
  ServiceTarget target;
  std::string config;
  std::string node;
  std::string scontrol = "scontrol";
  bool json = false;
};

// The value of " NAME=" in a line of scontrol; up to the next blank.
std::string_view field(std::string_view line, std::string_view name) {
  const std::string key = " " + std::string(name) + "=";
  const auto at = line.find(key);
  if (at == line.npos) return {};
  const auto begin = at + key.size();
  return line.substr(begin, line.find_first_of(" \n", begin) - begin);
}

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

Result<std::string> scontrol(const NodeCheckOptions& options, const std::string& arguments) {
  const std::string command = "exec " + options.scontrol + " " + arguments;
  auto result = run_bounded(command, "", kScontrolLimit, kMaxScontrolBytes);
  if (!result.has_value()) return result.error().within("scontrol " + arguments);
  if (result->exit_status != 0)
    return error(Code::IO, "scontrol %s: exit status %d", arguments.c_str(), result->exit_status);
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
  return scontrol(options, "update NodeName=" + shell_word(node) + " " + change).status();
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
  const bool in_pool = site.pool_of_node(node) != nullptr;
  Status healthy;
  NodeAction action = NodeAction::kNone;
  if (in_pool) {
    healthy = health(options);
    PLEXRL_ASSIGN(const std::string line,
                  scontrol(options, "show node --oneliner " + shell_word(node)));
    action = decide(healthy.ok(), line);
    PLEXRL_TRY(apply(options, node, action));
  }
  if (options.json)
    print_json({{"node", node},
                {"in_pool", in_pool},
                {"healthy", in_pool ? nlohmann::json(healthy.ok()) : nlohmann::json()},
                {"error", healthy.text()},
                {"action", action_name(action)}});
  else if (!healthy.ok() || action != NodeAction::kNone)
    print_text(node + ": " + (healthy.ok() ? "plexrld answers" : healthy.text()) +
               "; action: " + action_name(action) + "\n");
  return {};
}

}  // namespace

NodeAction decide(bool healthy, std::string_view node_line) {
  const std::string_view state = field(node_line, "State");
  const bool drained = state.find("DRAIN") != state.npos;
  const bool ours = field(node_line, "Reason").starts_with(kDrainMark);
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
  add_service_options(*command, options->target);
  add_json_option(*command, options->json);
  on_chosen(*command, chosen, options, run_node_check);
}

}  // namespace plexrl::cli
