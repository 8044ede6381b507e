// SPDX-License-Identifier: Apache-2.0
#include "submission_cases.h"

namespace plexrl::slurm {

const char* const kCasesSite = R"(
cluster: cases
models:
  - {name: tiny, path: /m, parameters: 1000000, hidden_size: 128, layers: 3, intermediate_size: 384}
  - {name: judge, path: /m, parameters: 2000000, hidden_size: 128, layers: 3, intermediate_size: 384}
  - {name: huge, path: /m, parameters: 1099511627776, hidden_size: 128, layers: 3, intermediate_size: 384}
pools:
  - name: rl
    partition: plexrl
    nodes: node[1-2]
    models: [tiny, judge, huge]
    node_cpus: 12
    host_memory_mib: 4096
    device_memory_mib: 512
    activation_memory_mib: 256
  - name: closed
    partition: closed_part
    nodes: node3
    users: bob
    groups: rlvr
    models: tiny
    train_modes: full
    max_share: 50
    default_share: 25
    max_lora_rank: 8
    host_memory_mib: 4096
    device_memory_mib: 512
    activation_memory_mib: 256
)";

const char* const kCasesProfiles = R"(plexrl-profiles 1
65534 rl lora tiny grpo 4 23 15 6
65534 rl lora tiny long_name 1 96 90 6
65534 rl full tiny,judge grpo 2 51 20 30
1 rl lora tiny other 4 99 15 6
65534 rl lora tiny broken 4 101 15 6
)";

void set(JobRequest* request, Option option, const char* value) {
  request->options[static_cast<std::size_t>(option)] = value;
}

JobRequest batch(const char* pool, const char* models) {
  JobRequest request;
  request.has_script = true;
  if (pool != nullptr) set(&request, Option::kPool, pool);
  if (models != nullptr) set(&request, Option::kModel, models);
  return request;
}

namespace {

void ordinary(JobRequest* request) {
  for (auto& option : request->options) option.reset();
}

std::vector<std::string> own_environment() {
  return {"SLURM_GRES=none", "PLEXRL_MARKED=SLURM_GRES"};
}

std::vector<Acceptance> of_the_pool() {
  return {
      {"the pool's defaults", [](JobRequest*) {},
       "v1:pool=rl:share=50:mem=82:mode=lora:rank=16:slowdown=0:models=tiny", "plexrl",
       "gres:plexrl:50,gres:plexrl_mem:82", "", own_environment()},
      {"everything said",
       [](JobRequest* r) {
         set(r, Option::kModel, "tiny,judge");
         set(r, Option::kTrain, "full");
         set(r, Option::kShare, "25");
         set(r, Option::kSlowdown, "1.35");
         set(r, Option::kEnv, "none");
         r->partition = "plexrl";
         r->min_nodes = r->max_nodes = 1;
       },
       "v1:pool=rl:share=42:mem=172:mode=full:rank=0:slowdown=1350:models=tiny,judge", "plexrl",
       "gres:plexrl:42,gres:plexrl_mem:172", "", own_environment()},
      {"GPUs of a batch job",
       [](JobRequest* r) {
         set(r, Option::kTrain, "none");
         r->tres_per_node = "gres:gpu:a100:2,gres:nvme:1";
         r->tres_per_job = "gres:gpu:2";
         r->tres_per_socket = "gres:shard:2";
         r->tres_per_task = "gres:mps:10,gres:nvme:1";
         r->gpu_hints = true;
         r->environment = {"PATH=/bin", "SLURM_GPUS=2"};
       },
       "v1:pool=rl:share=50:mem=64:mode=none:rank=0:slowdown=0:models=tiny",
       "plexrl",
       "gres:nvme:1,gres:plexrl:50,gres:plexrl_mem:64",
       "gres:nvme:1",
       {"PATH=/bin", "SLURM_GRES=none", "PLEXRL_MARKED=SLURM_GRES"}},
      {"all CPUs of a node", [](JobRequest* r) { r->min_cpus = 12; },
       "v1:pool=rl:share=50:mem=82:mode=lora:rank=16:slowdown=0:models=tiny", "plexrl",
       "gres:plexrl:50,gres:plexrl_mem:82", "", own_environment()},
      {"from within a pool's job",
       [](JobRequest* r) {
         r->environment = {"PLEXRL_TOKEN=abc", "PLEXRL_MARKED=PLEXRL_TOKEN", "A=1"};
       },
       "v1:pool=rl:share=50:mem=82:mode=lora:rank=16:slowdown=0:models=tiny",
       "plexrl",
       "gres:plexrl:50,gres:plexrl_mem:82",
       "",
       {"A=1", "SLURM_GRES=none", "PLEXRL_MARKED=SLURM_GRES"}},
      {"srun",
       [](JobRequest* r) { r->has_script = false; },
       "v1:pool=rl:share=50:mem=82:mode=lora:rank=16:slowdown=0:models=tiny",
       "plexrl",
       "gres:plexrl:50,gres:plexrl_mem:82",
       "",
       {}},
  };
}

constexpr const char* kForRollout = "plexrl_rl_for_rollout";
constexpr const char* kMostlyRollout = "plexrl: mostly rollout";

// The profiles are those of kCasesProfiles.
std::vector<Acceptance> with_earlier_runs() {
  return {
      {"a name that no run had", [](JobRequest* r) { r->name = "other"; },
       "v1:pool=rl:share=50:mem=82:mode=lora:rank=16:slowdown=0:models=tiny:name=other", "plexrl",
       "gres:plexrl:50,gres:plexrl_mem:82", "", own_environment()},
      {"a line that is no profile", [](JobRequest* r) { r->name = "broken"; },
       "v1:pool=rl:share=50:mem=82:mode=lora:rank=16:slowdown=0:models=tiny:name=broken", "plexrl",
       "gres:plexrl:50,gres:plexrl_mem:82", "", own_environment()},
      {"earlier runs", [](JobRequest* r) { r->name = "grpo"; },
       "v1:pool=rl:share=25:mem=82:mode=lora:rank=16:slowdown=0:models=tiny:name=grpo", "plexrl",
       "gres:plexrl:25,gres:plexrl_mem:82", "", own_environment(),
       "share 25: earlier runs of 'grpo' were busy for 23 percent of their time (4 runs)",
       kForRollout, kMostlyRollout},
      {"earlier runs of a name with blanks", [](JobRequest* r) { r->name = "long name"; },
       "v1:pool=rl:share=100:mem=82:mode=lora:rank=16:slowdown=0:models=tiny:name=long_name",
       "plexrl", "gres:plexrl:100,gres:plexrl_mem:82", "", own_environment(),
       "share 100: earlier runs of 'long_name' were busy for 96 percent of their time (1 run)",
       kForRollout, kMostlyRollout},
      {"earlier runs, and a share that is asked for",
       [](JobRequest* r) { r->name = "grpo", set(r, Option::kShare, "100"); },
       "v1:pool=rl:share=100:mem=82:mode=lora:rank=16:slowdown=0:models=tiny:name=grpo", "plexrl",
       "gres:plexrl:100,gres:plexrl_mem:82", "", own_environment(), "", kForRollout,
       kMostlyRollout},
      // 23 / (350 / 10 + 23): of what the runs were, not of the 50 that is asked for.
      {"earlier runs and a bound",
       [](JobRequest* r) {
         r->name = "grpo";
         set(r, Option::kShare, "25");
         set(r, Option::kSlowdown, "1.35");
       },
       "v1:pool=rl:share=40:mem=82:mode=lora:rank=16:slowdown=1350:models=tiny:name=grpo", "plexrl",
       "gres:plexrl:40,gres:plexrl_mem:82", "", own_environment(),
       "share 40: earlier runs of 'grpo' were busy for 23 percent of their time (4 runs)",
       kForRollout, kMostlyRollout},
      {"earlier runs that trained",
       [](JobRequest* r) {
         r->name = "grpo";
         set(r, Option::kModel, "tiny,judge");
         set(r, Option::kTrain, "full");
       },
       "v1:pool=rl:share=55:mem=172:mode=full:rank=0:slowdown=0:models=tiny,judge:name=grpo",
       "plexrl", "gres:plexrl:55,gres:plexrl_mem:172", "", own_environment(),
       "share 55: earlier runs of 'grpo' were busy for 51 percent of their time (2 runs)",
       "plexrl_rl_for_training", "plexrl: mostly training"},
      {"earlier runs, and nodes of the user's own choice",
       [](JobRequest* r) { r->name = "grpo", r->picks_nodes = true; },
       "v1:pool=rl:share=25:mem=82:mode=lora:rank=16:slowdown=0:models=tiny:name=grpo", "plexrl",
       "gres:plexrl:25,gres:plexrl_mem:82", "", own_environment(),
       "share 25: earlier runs of 'grpo' were busy for 23 percent of their time (4 runs)", "",
       kMostlyRollout},
      {"earlier runs, and a resource that some nodes may lack",
       [](JobRequest* r) { r->name = "grpo", r->tres_per_node = "gres:gpu:1,gres:nvme:1"; },
       "v1:pool=rl:share=25:mem=82:mode=lora:rank=16:slowdown=0:models=tiny:name=grpo", "plexrl",
       "gres:nvme:1,gres:plexrl:25,gres:plexrl_mem:82", "", own_environment(),
       "share 25: earlier runs of 'grpo' were busy for 23 percent of their time (4 runs)", "",
       kMostlyRollout},
  };
}

std::vector<Acceptance> of_ordinary_jobs() {
  return {
      {"an ordinary job",
       [](JobRequest* r) {
         ordinary(r);
         r->partition = "batch";
         r->tres_per_node = "gres:gpu:2";
         r->exclusive = true;
         r->min_nodes = 64;
         r->environment = {"A=1", "SLURM_GPUS=2"};
       },
       "",
       "batch",
       "gres:gpu:2",
       "",
       {"A=1", "SLURM_GPUS=2"}},
      {"an ordinary job from within a pool's",
       [](JobRequest* r) {
         ordinary(r);
         r->environment = {"A=1", "PLEXRL_TOKEN=abc", "SLURM_GRES=none",
                           "PLEXRL_MARKED=PLEXRL_TOKEN,SLURM_GRES"};
       },
       "",
       "",
       "",
       "",
       {"A=1"}},
  };
}

}  // namespace

const std::vector<Refusal>& refusals() {
  static const std::vector<Refusal> cases = {
      {"unknown pool", [](JobRequest* r) { set(r, Option::kPool, "lr"); },
       "no such pool; pools open to you: rl"},
      {"pool is no name", [](JobRequest* r) { set(r, Option::kPool, "a:b"); },
       "write --plexrl-pool=NAME"},
      {"forged grant",
       [](JobRequest* r) {
         set(r, Option::kPool, "v1:pool=rl:share=99:mem=1:mode=full:rank=0:slowdown=0:models=tiny");
       },
       "write --plexrl-pool=NAME"},
      {"unknown model", [](JobRequest* r) { set(r, Option::kModel, "tinny"); },
       "it has: tiny, judge, huge"},
      {"no model", [](JobRequest* r) { r->options[1].reset(); }, "add --plexrl-model=NAME"},
      {"model list", [](JobRequest* r) { set(r, Option::kModel, "tiny,,judge"); },
       "write names with commas between"},
      {"mode", [](JobRequest* r) { set(r, Option::kTrain, "qlora"); }, "write lora, lora:RANK"},
      {"rank", [](JobRequest* r) { set(r, Option::kTrain, "lora:65"); }, "write lora:64"},
      {"share value", [](JobRequest* r) { set(r, Option::kShare, "75"); }, "write 25, 50 or 100"},
      {"slowdown", [](JobRequest* r) { set(r, Option::kSlowdown, "fast"); }, "such as 1.5"},
      {"env", [](JobRequest* r) { set(r, Option::kEnv, "vllm"); }, "write tinker, openai"},
      {"too large",
       [](JobRequest* r) {
         set(r, Option::kModel, "huge");
         set(r, Option::kTrain, "full");
       },
       "write --plexrl-train=lora"},
      {"partition", [](JobRequest* r) { r->partition = "batch"; }, "leave --partition out"},
      {"partitions", [](JobRequest* r) { r->partition = "plexrl,batch"; }, "leave --partition out"},
      {"exclusive", [](JobRequest* r) { r->exclusive = true; }, "--plexrl-share=100"},
      {"cores of the service", [](JobRequest* r) { r->core_spec = true; }, "--core-spec"},
      {"all memory", [](JobRequest* r) { r->whole_memory = true; }, "--mem=0"},
      {"CPUs that no node has", [](JobRequest* r) { r->min_cpus = 13; },
       "asks for 13 CPUs, and a node of pool 'rl' has 12 for jobs"},
      {"two nodes", [](JobRequest* r) { r->min_nodes = 2; }, "write --nodes=1"},
      {"up to two nodes", [](JobRequest* r) { r->min_nodes = 1, r->max_nodes = 2; },
       "write --nodes=1"},
      {"heterogeneous", [](JobRequest* r) { r->het_component = true; }, "a job of its own"},
      {"srun with GPUs",
       [](JobRequest* r) { r->has_script = false, r->tres_per_node = "gres:gpu:1"; },
       "the pool's service brings the devices"},
      {"salloc with GPU hints", [](JobRequest* r) { r->has_script = false, r->gpu_hints = true; },
       "GPU options do not go with"},
      {"hand-written share", [](JobRequest* r) { r->tres_per_node = "gres:plexrl:100"; },
       "are set by the site"},
      {"hand-written memory", [](JobRequest* r) { r->tres_per_job = "gres/PLEXRL_mem=1"; },
       "are set by the site"},
      {"hidden in a list", [](JobRequest* r) { r->tres_per_task = "gpu:1, plexrl:1"; },
       "are set by the site"},
      {"options without a pool", [](JobRequest* r) { ordinary(r), set(r, Option::kShare, "50"); },
       "--plexrl-share has no effect alone: add --plexrl-pool=NAME"},
      {"a pool's partition", [](JobRequest* r) { ordinary(r), r->partition = "plexrl"; },
       "add --plexrl-pool=rl"},
      {"among other partitions",
       [](JobRequest* r) { ordinary(r), r->partition = "batch,closed_part"; },
       "add --plexrl-pool=closed"},
      {"hand-written share without a pool",
       [](JobRequest* r) { ordinary(r), r->tres_per_node = "gres:plexrl:1"; },
       "write --plexrl-pool=NAME"},
      {"closed pool", [](JobRequest* r) { set(r, Option::kPool, "closed"); },
       "the pool is not open to you; pools open to you: rl"},
  };
  return cases;
}

const std::vector<Acceptance>& acceptances() {
  static const std::vector<Acceptance> cases = [] {
    auto all = of_the_pool();
    for (const auto& more : {with_earlier_runs(), of_ordinary_jobs()})
      all.insert(all.end(), more.begin(), more.end());
    return all;
  }();
  return cases;
}

const std::vector<Change>& changes() {
  static const std::vector<Change> cases = {
      {"gres", true, [](ModifyRequest* r) { r->tres_per_node = "gres:nvme:1"; },
       "the GRES request"},
      {"own gres", true, [](ModifyRequest* r) { r->tres_per_node = "gres:plexrl:100"; },
       "are set by the site"},
      {"gpus", true, [](ModifyRequest* r) { r->tres_per_job = "gres:gpu:1"; }, "the GRES request"},
      {"partition", true, [](ModifyRequest* r) { r->partition = "batch"; }, "the partition"},
      {"other pool", true, [](ModifyRequest* r) { r->partition = "closed_part"; }, "the partition"},
      {"partitions", true, [](ModifyRequest* r) { r->partition = "plexrl,batch"; },
       "the partition"},
      {"features", true, [](ModifyRequest* r) { r->features = true; }, "the features"},
      {"sharing", true, [](ModifyRequest* r) { r->sharing = true; }, "the sharing of nodes"},
      {"memory", true, [](ModifyRequest* r) { r->whole_memory = true; }, "the memory"},
      {"nodes", true, [](ModifyRequest* r) { r->min_nodes = 2; }, "the number of nodes"},
      {"most nodes", true, [](ModifyRequest* r) { r->max_nodes = 2; }, "the number of nodes"},
      {"nothing that is looked at", true, [](ModifyRequest*) {}, nullptr},
      {"what it is already", true,
       [](ModifyRequest* r) { r->partition = "plexrl", r->min_nodes = r->max_nodes = 1; }, nullptr},
      {"ordinary: into the pool", false, [](ModifyRequest* r) { r->partition = "plexrl"; },
       "submit a job with --plexrl-pool=rl"},
      {"ordinary: own gres", false, [](ModifyRequest* r) { r->tres_per_node = "gres/plexrl=50"; },
       "submit a job with --plexrl-pool=NAME"},
      {"ordinary: anything else", false,
       [](ModifyRequest* r) {
         r->partition = "batch";
         r->tres_per_node = "gres:gpu:4";
         r->features = r->sharing = true;
         r->min_nodes = 8;
       },
       nullptr},
  };
  return cases;
}

}  // namespace plexrl::slurm
