// SPDX-License-Identifier: Apache-2.0
#include "slurm/rewrite.h"

#include <algorithm>

#include "config/pool_features.h"
#include "slurm/gres_list.h"
#include "slurm/host_memory.h"
#include "slurm/marked_env.h"
#include "slurm/names.h"
#include "slurm/slowdown.h"

namespace plexrl::slurm {
namespace {

using config::PoolEntry;
using config::SiteConfig;

constexpr std::uint32_t kDefaultRank = 16;

bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::vector<std::string> partitions_of(const JobRequest& request) {
  return gres_items(request.partition);
}

// The fields that may hold a GRES request.
std::vector<const std::string*> tres_fields(const JobRequest& request) {
  return {&request.tres_per_node, &request.tres_per_job, &request.tres_per_socket,
          &request.tres_per_task};
}

template <class Predicate>
bool any_tres(const JobRequest& request, Predicate predicate) {
  const auto fields = tres_fields(request);
  return std::any_of(fields.begin(), fields.end(),
                     [&](const std::string* field) { return predicate(*field); });
}

// Models that this user may see are no secret within the pool, names of other pools are not shown
// to those who may not use them.
bool may_use(const PoolEntry& pool, const Submitter& submitter) {
  if (pool.users.empty() && pool.groups.empty()) return true;
  if (contains(pool.users, submitter.user)) return true;
  return std::any_of(submitter.groups.begin(), submitter.groups.end(),
                     [&](const std::string& group) { return contains(pool.groups, group); });
}

std::string pools_open_to(const SiteConfig& site, const Submitter& submitter) {
  std::vector<std::string> names;
  for (const PoolEntry& pool : site.pools)
    if (may_use(pool, submitter)) names.push_back(pool.name);
  return names.empty() ? "no pool is open to you" : "pools open to you: " + joined(names, ", ");
}

// ---- jobs without --plexrl-pool ----

Status check_no_options(const JobRequest& request) {
  for (const OptionRow& row : option_table())
    if (request.option(row.option))
      return error(Code::INVALID_ARGUMENT, "--%s has no effect alone: add --plexrl-pool=NAME",
                   row.name);
  return {};
}

Result<Rewrite> ordinary_job(const JobRequest& request, const SiteConfig& site) {
  PLEXRL_TRY(check_no_options(request));
  for (const std::string& partition : partitions_of(request))
    if (const PoolEntry* pool = site.pool_of_partition(partition); pool != nullptr)
      return error(Code::INVALID_ARGUMENT,
                   "partition '%s' serves the jobs of pool '%s' only: add --plexrl-pool=%s and "
                   "--plexrl-model=NAME, or choose another partition",
                   partition.c_str(), pool->name.c_str(), pool->name.c_str());
  Rewrite result;
  result.environment = request.environment;
  strip_marked(&result.environment);
  return result;
}

// ---- jobs of a pool ----

Result<const PoolEntry*> choose_pool(const JobRequest& request, const SiteConfig& site,
                                     const Submitter& submitter) {
  const std::string& text = *request.option(Option::kPool);
  if (parse_grant(text))
    return error(
        Code::INVALID_ARGUMENT,
        "--plexrl-pool holds the grant of the job that this one was submitted from: write "
        "--plexrl-pool=NAME, or unset the variables SLURM_SPANK__SLURM_SPANK_OPTION_plexrl_*");
  PLEXRL_ASSIGN(const std::string name, parse_pool(text));
  const PoolEntry* pool = site.find_pool(name);
  if (pool == nullptr)
    return error(Code::NOT_FOUND, "--plexrl-pool=%s: no such pool; %s", name.c_str(),
                 pools_open_to(site, submitter).c_str());
  if (!may_use(*pool, submitter))
    return error(Code::PERMISSION, "--plexrl-pool=%s: the pool is not open to you; %s",
                 name.c_str(), pools_open_to(site, submitter).c_str());
  return pool;
}

Status check_shape(const JobRequest& request, const PoolEntry& pool) {
  const char* name = pool.name.c_str();
  for (const std::string& partition : partitions_of(request))
    if (partition != pool.partition)
      return error(Code::INVALID_ARGUMENT,
                   "pool '%s' is partition '%s', not '%s': leave --partition out", name,
                   pool.partition.c_str(), partition.c_str());
  if (request.het_component)
    return error(Code::UNSUPPORTED,
                 "heterogeneous jobs cannot use a pool: submit the part with --plexrl-pool=%s as a "
                 "job of its own",
                 name);
  if (request.min_nodes.value_or(1) > 1 || request.max_nodes.value_or(1) > 1)
    return error(Code::UNSUPPORTED,
                 "a job of pool '%s' runs on one node in this version: write --nodes=1", name);
  if (request.exclusive)
    return error(Code::INVALID_ARGUMENT,
                 "--exclusive does not go with pool '%s', whose nodes are shared: leave it out; "
                 "--plexrl-share=100 gives the whole device group",
                 name);
  if (request.core_spec)
    return error(
        Code::INVALID_ARGUMENT,
        "--core-spec and --thread-spec do not go with pool '%s': they take the whole node, "
        "and the cores that its service runs on: leave them out",
        name);
  if (request.whole_memory)
    return error(Code::INVALID_ARGUMENT,
                 "--mem=0 asks for all memory of a shared node of pool '%s': write the amount that "
                 "the job's own processes need",
                 name);
  if (pool.node_cpus != 0 && request.min_cpus.value_or(1) > pool.node_cpus)
    return error(
        Code::NO_CAPACITY,
        "the job asks for %u CPUs, and a node of pool '%s' has %u for jobs: write --ntasks "
        "and --cpus-per-task that make at most that",
        *request.min_cpus, name, pool.node_cpus);
  return {};
}

Status check_gpus(const JobRequest& request, const PoolEntry& pool) {
  const bool gpus = request.gpu_hints || any_tres(request, names_gpu);
  if (!gpus || request.has_script) return {};
  return error(
      Code::INVALID_ARGUMENT,
      "GPU options do not go with --plexrl-pool=%s in srun and salloc: leave them out, the "
      "pool's service brings the devices",
      pool.name.c_str());
}

Status choose_models(const JobRequest& request, const PoolEntry& pool, Grant* grant) {
  const auto& text = request.option(Option::kModel);
  if (!text && pool.models.size() == 1) {
    grant->models = pool.models;
    return {};
  }
  if (!text)
    return error(Code::INVALID_ARGUMENT, "add --plexrl-model=NAME; models of pool '%s': %s",
                 pool.name.c_str(), joined(pool.models, ", ").c_str());
  PLEXRL_ASSIGN(grant->models, parse_models(*text));
  for (const std::string& model : grant->models)
    if (!contains(pool.models, model))
      return error(Code::NOT_FOUND, "--plexrl-model=%s: pool '%s' has no such model; it has: %s",
                   model.c_str(), pool.name.c_str(), joined(pool.models, ", ").c_str());
  return {};
}

Status choose_training(const JobRequest& request, const PoolEntry& pool, Grant* grant) {
  const std::vector<std::string> modes = pool.train_modes.empty()
                                             ? std::vector<std::string>{"lora", "full", "none"}
                                             : pool.train_modes;
  const std::string preferred = contains(modes, "lora") ? "lora" : modes.front();
  PLEXRL_ASSIGN(const TrainOption train,
                parse_train(request.option(Option::kTrain).value_or(preferred)));
  if (!contains(modes, train.mode))
    return error(Code::PERMISSION, "--plexrl-train=%s is not open in pool '%s'; it allows: %s",
                 train.mode.c_str(), pool.name.c_str(), joined(modes, ", ").c_str());
  grant->train_mode = train.mode;
  if (train.mode == "lora")
    grant->lora_rank = train.rank != 0 ? train.rank : std::min(kDefaultRank, pool.max_lora_rank);
  if (grant->lora_rank > pool.max_lora_rank)
    return error(Code::PERMISSION,
                 "--plexrl-train=lora:%u: the largest rank in pool '%s' is %u: write lora:%u",
                 grant->lora_rank, pool.name.c_str(), pool.max_lora_rank, pool.max_lora_rank);
  return {};
}

// How much of its time the job is busy: as earlier runs were, else as the user or the pool guesses.
// What a user asks for in words is given, whatever was learnt: it is a reservation too.
struct Demand {
  std::uint32_t share = 0;
  std::uint32_t busy = 0;
};

Result<Demand> choose_demand(const JobRequest& request, const PoolEntry& pool,
                             const Profile* learnt) {
  Demand demand{pool.default_share, 0};
  if (const auto& text = request.option(Option::kShare); text) {
    PLEXRL_ASSIGN(demand.share, parse_share(*text));
    if (demand.share > pool.max_share)
      return error(
          Code::PERMISSION,
          "--plexrl-share=%u: pool '%s' gives a job at most %u: write --plexrl-share=%u or "
          "leave it out",
          demand.share, pool.name.c_str(), pool.max_share, pool.max_share >= 50 ? 50U : 25U);
  } else if (learnt != nullptr) {
    demand.share = std::min(learnt_share(*learnt), pool.max_share);
  }
  demand.busy = learnt != nullptr ? learnt->busy_percent : demand.share;
  return demand;
}

Status choose_share(const JobRequest& request, const PoolEntry& pool, const Profile* learnt,
                    Grant* grant) {
  PLEXRL_ASSIGN(const Demand demand, choose_demand(request, pool, learnt));
  grant->share_percent = demand.share;
  const auto& text = request.option(Option::kSlowdown);
  if (!text) return {};
  PLEXRL_ASSIGN(grant->slowdown_permille, parse_slowdown(*text));
  const std::uint32_t least = share_for_slowdown(demand.busy, grant->slowdown_permille);
  if (least > pool.max_share)
    return error(
        Code::PERMISSION,
        "--plexrl-slowdown=%s needs a share of %u for a job that is busy for %u percent of "
        "its time%s, and pool '%s' gives at most %u: write a larger factor%s, or leave the "
        "factor out",
        text->c_str(), least, demand.busy, learnt != nullptr ? ", as its earlier runs were" : "",
        pool.name.c_str(), pool.max_share,
        learnt != nullptr ? "" : ", a smaller --plexrl-share if the job is less busy");
  grant->share_percent = std::max(demand.share, least);
  return {};
}

Status choose_env(const JobRequest& request, const SiteConfig& site, Grant* grant) {
  const auto& text = request.option(Option::kEnv);
  if (!text) return {};
  PLEXRL_ASSIGN(grant->env, parse_env(*text));
  if (grant->env.empty() || !site.daemon.http_address.empty()) return {};
  return error(
      Code::UNSUPPORTED,
      "--plexrl-env=%s: this site serves no HTTP by TCP (http_address of plexrl.yaml): "
      "leave the option out or write none; the socket of PLEXRL_SOCKET is there either way",
      text->c_str());
}

Status choose_memory(const SiteConfig& site, const PoolEntry& pool, Grant* grant) {
  std::uint64_t bytes = 0;
  for (const std::string& name : grant->models)
    bytes += model_host_bytes(*site.find_model(name), grant->train_mode, grant->lora_rank,
                              site.daemon.chunk_kib * 1024);
  grant->host_memory_mib = (bytes + (1 << 20) - 1) / (1 << 20) + pool.kv_host_mib;
  if (grant->host_memory_mib <= pool.host_memory_mib) return {};
  return error(Code::NO_CAPACITY,
               "the state of these models needs %llu MiB of host memory, and a node of pool '%s' "
               "has %llu: write --plexrl-train=lora, fewer models or a smaller one",
               static_cast<unsigned long long>(grant->host_memory_mib), pool.name.c_str(),
               static_cast<unsigned long long>(pool.host_memory_mib));
}

// Everything but the share, which earlier runs of such a job decide.
Result<Grant> begin_grant(const JobRequest& request, const PoolEntry& pool) {
  Grant grant;
  grant.pool = pool.name;
  grant.name = profile_name(request.name);
  PLEXRL_TRY(choose_models(request, pool, &grant));
  PLEXRL_TRY(choose_training(request, pool, &grant));
  return grant;
}

Status finish_grant(const JobRequest& request, const SiteConfig& site, const PoolEntry& pool,
                    const Profile* learnt, Grant* grant) {
  PLEXRL_TRY(choose_share(request, pool, learnt, grant));
  PLEXRL_TRY(choose_env(request, site, grant));
  return choose_memory(site, pool, grant);
}

std::string note_of(const Profile& learnt, const Grant& grant) {
  return "share " + std::to_string(grant.share_percent) + ": earlier runs of '" + grant.name +
         "' were busy for " + std::to_string(learnt.busy_percent) + " percent of their time (" +
         std::to_string(learnt.runs) + (learnt.runs == 1 ? " run)" : " runs)");
}

Rewrite changes(const JobRequest& request, const PoolEntry& pool, const Grant& grant) {
  Rewrite result;
  result.partition = pool.partition;
  const std::string& prefix = request.gres_prefix;
  const std::string own = prefix + "plexrl:" + std::to_string(grant.share_percent) + "," + prefix +
                          "plexrl_mem:" + std::to_string(grant.host_memory_mib);
  const std::string others = without_gpu(request.tres_per_node);
  result.tres_per_node = others.empty() ? own : others + "," + own;
  result.tres_per_job = without_gpu(request.tres_per_job);
  result.tres_per_socket = without_gpu(request.tres_per_socket);
  result.tres_per_task = without_gpu(request.tres_per_task);
  result.clear_gpu_hints = request.gpu_hints;
  result.environment = request.environment;
  strip_marked(&result.environment);
  strip_gpu_variables(&result.environment);
  if (request.has_script) add_step_gres(&result.environment);
  result.grant = grant;
  return result;
}

// Rollouts when they are more than half of what it is busy with.
config::JobKind kind_of(const Profile& profile) {
  return 2 * profile.rollout_percent > profile.busy_percent ? config::JobKind::kRollout
                                                            : config::JobKind::kTraining;
}

// A node where no job of the same kind runs, if there is one. Slurm tries a preference in place of
// whatever else the request says of nodes, and refuses the job when the two exclude each other; so
// only a request that any node of the pool can serve gets one.
void choose_place(const JobRequest& request, const Profile& learnt, Rewrite* result) {
  const config::JobKind kind = kind_of(learnt);
  result->mark = config::job_kind_mark(kind);
  const auto names_other = [](const std::string& list) { return !without_gpu(list).empty(); };
  if (request.picks_nodes || any_tres(request, names_other)) return;
  result->prefer = config::pool_feature(result->grant->pool, kind);
}

}  // namespace

Result<Rewrite> rewrite(const JobRequest& request, const SiteConfig& site,
                        const Submitter& submitter, const Profiles& profiles) {
  if (any_tres(request, names_plexrl))
    return error(Code::INVALID_ARGUMENT,
                 "gres/plexrl and gres/plexrl_mem are set by the site: leave them out and write "
                 "--plexrl-pool=NAME with --plexrl-share=25, 50 or 100");
  if (!request.option(Option::kPool)) return ordinary_job(request, site);
  PLEXRL_ASSIGN(const PoolEntry* pool, choose_pool(request, site, submitter));
  PLEXRL_TRY(check_shape(request, *pool));
  PLEXRL_TRY(check_gpus(request, *pool));
  PLEXRL_ASSIGN(Grant grant, begin_grant(request, *pool));
  const auto found = profiles.find(profile_key(submitter.uid, grant));
  const Profile* const learnt = found == profiles.end() ? nullptr : &found->second;
  PLEXRL_TRY(finish_grant(request, site, *pool, learnt, &grant));
  Rewrite result = changes(request, *pool, grant);
  const bool counted = !request.option(Option::kShare) || request.option(Option::kSlowdown);
  if (learnt != nullptr && counted) result.note = note_of(*learnt, grant);
  if (learnt != nullptr) choose_place(request, *learnt, &result);
  return result;
}

}  // namespace plexrl::slurm
