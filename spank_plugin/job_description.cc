// SPDX-License-Identifier: Apache-2.0
#include "job_description.h"

#include <algorithm>
#include <string_view>

#include "slurm/gres_list.h"

namespace plexrl::job_submit {
namespace {

using slurm::kOptionCount;
using slurm::Option;

constexpr std::string_view kEntryPrefix = "_SLURM_SPANK_OPTION_plexrl_";

std::string text(const char* field) { return field != nullptr ? field : ""; }

void set(char** field, const std::string& value) {
  slurm_xfree(reinterpret_cast<void**>(field));
  if (!value.empty()) *field = slurm_xstrdup(value.c_str());
}

// Slurm writes '_' for '-' in the names of these entries.
bool names_option(std::string_view name, const slurm::OptionRow& row) {
  std::string wanted = row.name;
  if (name == wanted) return true;
  std::replace(wanted.begin(), wanted.end(), '-', '_');
  return name == wanted;
}

// The option that an entry of spank_job_env gives, or null.
const slurm::OptionRow* option_of(std::string_view entry) {
  if (entry.substr(0, kEntryPrefix.size()) != kEntryPrefix) return nullptr;
  const std::string_view name =
      entry.substr(kEntryPrefix.size(), entry.find('=') - kEntryPrefix.size());
  for (const slurm::OptionRow& row : slurm::option_table())
    if (names_option(name, row)) return &row;
  return nullptr;
}

std::string value_of(std::string_view entry) {
  const std::size_t equals = entry.find('=');
  return equals == std::string_view::npos ? "" : std::string(entry.substr(equals + 1));
}

std::optional<std::uint32_t> given(std::uint32_t value) {
  return value == NO_VAL || value == 0 ? std::nullopt : std::optional<std::uint32_t>(value);
}

// Of --ntasks and --cpus-per-task, or --mincpus. Slurm's clients count --overcommit in.
std::optional<std::uint32_t> min_cpus(const job_desc_msg_t& d) {
  const std::uint32_t of_node = d.pn_min_cpus == NO_VAL16 ? 0 : d.pn_min_cpus;
  return given(std::max(given(d.min_cpus).value_or(0), of_node));
}

// --exclusive is 0, --exclusive=user 2, --exclusive=mcs 3; NO_VAL16 when nothing was said.
bool is_exclusive(std::uint16_t shared) {
  return shared == JOB_SHARED_NONE || shared == JOB_SHARED_USER || shared == JOB_SHARED_MCS;
}

bool whole_memory(std::uint64_t memory) { return (memory & ~MEM_PER_CPU) == 0; }

bool picks_nodes(const job_desc_msg_t& d) {
  const char* const wishes[] = {d.features, d.prefer, d.req_nodes, d.exc_nodes, d.reservation};
  return std::any_of(std::begin(wishes), std::end(wishes),
                     [](const char* wish) { return !text(wish).empty(); });
}

bool has_gpu_hints(const job_desc_msg_t& d) {
  return !text(d.cpus_per_tres).empty() || !text(d.mem_per_tres).empty() ||
         !text(d.tres_bind).empty() || !text(d.tres_freq).empty() ||
         (d.ntasks_per_tres != NO_VAL16 && d.ntasks_per_tres != 0);
}

void clear_gpu_hints(job_desc_msg_t* d) {
  for (char** field : {&d->cpus_per_tres, &d->mem_per_tres, &d->tres_bind, &d->tres_freq})
    set(field, "");
  d->ntasks_per_tres = NO_VAL16;
}

// After what another plugin has written.
void add_mark(const std::string& mark, job_desc_msg_t* d) {
  const std::string before = text(d->admin_comment);
  set(&d->admin_comment, before.empty() ? mark : before + "; " + mark);
}

void set_environment(const std::vector<std::string>& wanted, job_desc_msg_t* d) {
  auto** entries = static_cast<char**>(
      slurm_xcalloc(wanted.size() + 1, sizeof(char*), true, false, __FILE__, __LINE__, __func__));
  for (std::size_t i = 0; i < wanted.size(); ++i) entries[i] = slurm_xstrdup(wanted[i].c_str());
  for (std::uint32_t i = 0; i < d->env_size; ++i)
    slurm_xfree(reinterpret_cast<void**>(&d->environment[i]));
  slurm_xfree(reinterpret_cast<void**>(&d->environment));
  d->environment = entries;
  d->env_size = static_cast<std::uint32_t>(wanted.size());
}

void set_grant(const std::string& grant, job_desc_msg_t* d) {
  for (std::uint32_t i = 0; i < d->spank_job_env_size; ++i) {
    const std::string entry = text(d->spank_job_env[i]);
    const slurm::OptionRow* row = option_of(entry);
    if (row == nullptr || row->option != Option::kPool) continue;
    set(&d->spank_job_env[i], entry.substr(0, entry.find('=')) + "=" + grant);
  }
}

}  // namespace

slurm::JobRequest read_request(const job_desc_msg_t& d) {
  slurm::JobRequest request;
  for (std::uint32_t i = 0; i < d.spank_job_env_size; ++i) {
    const std::string entry = text(d.spank_job_env[i]);
    if (const slurm::OptionRow* row = option_of(entry); row != nullptr)
      request.options[static_cast<std::size_t>(row->option)] = value_of(entry);
  }
  request.name = text(d.name);
  request.partition = text(d.partition);
  request.tres_per_node = text(d.tres_per_node);
  request.tres_per_job = text(d.tres_per_job);
  request.tres_per_socket = text(d.tres_per_socket);
  request.tres_per_task = text(d.tres_per_task);
  request.gpu_hints = has_gpu_hints(d);
  request.exclusive = is_exclusive(d.shared);
  request.core_spec = d.core_spec != NO_VAL16;
  request.whole_memory = d.pn_min_memory != NO_VAL64 && whole_memory(d.pn_min_memory);
  request.picks_nodes = picks_nodes(d);
  request.het_component = d.het_job_offset != NO_VAL;
  request.has_script = d.script != nullptr;
  request.min_cpus = min_cpus(d);
  request.min_nodes = given(d.min_nodes);
  request.max_nodes = given(d.max_nodes);
  for (std::uint32_t i = 0; i < d.env_size; ++i)
    request.environment.push_back(text(d.environment[i]));
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 11, 0)
  request.gres_prefix = "gres/";
#endif
  return request;
}

bool concerns_plexrl(const slurm::JobRequest& request) {
  const bool option = std::any_of(std::begin(request.options), std::end(request.options),
                                  [](const auto& value) { return value.has_value(); });
  return option || slurm::names_plexrl(request.tres_per_node) ||
         slurm::names_plexrl(request.tres_per_job) ||
         slurm::names_plexrl(request.tres_per_socket) || slurm::names_plexrl(request.tres_per_task);
}

void apply(const slurm::Rewrite& rewrite, job_desc_msg_t* d) {
  if (d->environment != nullptr) set_environment(rewrite.environment, d);
  if (!rewrite.grant) return;
  set(&d->partition, rewrite.partition);
  set(&d->tres_per_node, rewrite.tres_per_node);
  set(&d->tres_per_job, rewrite.tres_per_job);
  set(&d->tres_per_socket, rewrite.tres_per_socket);
  set(&d->tres_per_task, rewrite.tres_per_task);
  if (!rewrite.prefer.empty()) set(&d->prefer, rewrite.prefer);
  if (!rewrite.mark.empty()) add_mark(rewrite.mark, d);
  if (rewrite.clear_gpu_hints) clear_gpu_hints(d);
  d->min_nodes = 1;
  d->max_nodes = 1;
  set_grant(slurm::format_grant(*rewrite.grant), d);
}

slurm::ModifyRequest read_modify(const job_desc_msg_t& d) {
  slurm::ModifyRequest request;
  request.partition = text(d.partition);
  request.tres_per_node = text(d.tres_per_node);
  request.tres_per_job = text(d.tres_per_job);
  request.tres_per_socket = text(d.tres_per_socket);
  request.tres_per_task = text(d.tres_per_task);
  request.features = d.features != nullptr || d.prefer != nullptr || d.cluster_features != nullptr;
  request.sharing = d.shared != NO_VAL16 || d.core_spec != NO_VAL16;
  request.whole_memory = d.pn_min_memory != NO_VAL64 && whole_memory(d.pn_min_memory);
  request.min_nodes = given(d.min_nodes);
  request.max_nodes = given(d.max_nodes);
  return request;
}

std::string pool_of(const job_desc_msg_t& d) {
  for (std::uint32_t i = 0; i < d.spank_job_env_size; ++i) {
    const std::string entry = text(d.spank_job_env[i]);
    const slurm::OptionRow* row = option_of(entry);
    if (row == nullptr || row->option != Option::kPool) continue;
    if (const auto grant = slurm::parse_grant(value_of(entry)); grant) return grant->pool;
  }
  return {};
}

}  // namespace plexrl::job_submit
