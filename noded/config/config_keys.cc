// SPDX-License-Identifier: Apache-2.0
#include "config/config_keys.h"

namespace plexrl::config {
namespace {

constexpr std::uint64_t kMaxMib = 1ULL << 30;  // 1 PiB: a larger number is a typing error

// Rows: name, field, form, required, min, max, words, doc.
const Key<SiteConfig> kSite[] = {
    {"cluster", &SiteConfig::cluster, Form::kName, true, 0, 0, nullptr,
     "Name of the Slurm cluster, as ClusterName in slurm.conf."},
};

const Key<PoolEntry> kPool[] = {
    {"name", &PoolEntry::name, Form::kName, true, 0, 0, nullptr, "What --plexrl-pool takes."},
    {"partition", &PoolEntry::partition, Form::kName, true, 0, 0, nullptr,
     "The Slurm partition of the pool. It serves no other jobs and must not be the default one."},
    {"nodes", &PoolEntry::nodes, Form::kHosts, true, 0, 0, nullptr,
     "The nodes, as Slurm host lists. A node belongs to one pool."},
    {"users", &PoolEntry::users, Form::kUser, false, 0, 0, nullptr,
     "Users that may use the pool. Without users and groups: everybody."},
    {"groups", &PoolEntry::groups, Form::kUser, false, 0, 0, nullptr,
     "Groups whose members may use the pool."},
    {"models", &PoolEntry::models, Form::kName, true, 0, 0, nullptr,
     "Models that jobs may name, each an entry of the section models."},
    {"train_modes", &PoolEntry::train_modes, Form::kWord, false, 0, 0, "lora full none",
     "Ways of training that are open to jobs. Without it: all three."},
    {"default_share", &PoolEntry::default_share, Form::kNumber, false, 1, 100, nullptr,
     "Share of a job that names none, in percent of the device group's time."},
    {"max_share", &PoolEntry::max_share, Form::kNumber, false, 1, 100, nullptr,
     "Largest share of one job, in percent."},
    {"node_cpus", &PoolEntry::node_cpus, Form::kNumber, false, 0, 65535, nullptr,
     "CPUs of each node that jobs may use: all of it less those of engine_threads + 1 cores, as "
     "Slurm counts CPUs (CPUEfctv of scontrol show node, once the lines of 'plexrl config slurm' "
     "are in force). A job that asks for more is refused, and 'plexrl config slurm' leaves the "
     "rest "
     "of a node to the service. 0: not known; such a job waits for ever."},
    {"host_memory_mib", &PoolEntry::host_memory_mib, Form::kNumber, true, 1, kMaxMib, nullptr,
     "Host memory of each node that holds jobs' state, in MiB. With the disk tier it makes the "
     "count "
     "of gres/plexrl_mem; one job gets at most this."},
    {"disk_tier_dir", &PoolEntry::disk_tier_dir, Form::kPath, false, 0, 0, nullptr,
     "Directory of the disk tier, where state goes for which host memory does not suffice. It "
     "belongs "
     "to the daemon's user, mode 0700, on a local disk. Without it there is no disk tier."},
    {"disk_tier_mib", &PoolEntry::disk_tier_mib, Form::kNumber, false, 0, kMaxMib, nullptr,
     "Room in disk_tier_dir, in MiB. It must really be there."},
    {"kv_host_mib", &PoolEntry::kv_host_mib, Form::kNumber, false, 0, kMaxMib, nullptr,
     "Part of each job's host memory that holds the KV cache of preempted rollouts, in MiB."},
    {"device_memory_mib", &PoolEntry::device_memory_mib, Form::kNumber, true, 1, kMaxMib, nullptr,
     "Device memory that the service may use on each node, in MiB."},
    {"activation_memory_mib", &PoolEntry::activation_memory_mib, Form::kNumber, true, 1, kMaxMib,
     nullptr, "Part of the device memory that holds activations, in MiB."},
    {"device", &PoolEntry::device, Form::kWord, false, 0, 0,
     "cpu cuda:0 cuda:1 cuda:2 cuda:3 cuda:4 cuda:5 cuda:6 cuda:7",
     "What the engines of a node compute on: its CPUs, or the CUDA device of that number. Needs a "
     "plexrl-engine with a CUDA LibTorch, and chunk_kib a multiple of 2048 (65536 or more is "
     "good)."},
    {"device_files", &PoolEntry::device_files, Form::kPath, false, 0, 0, nullptr,
     "Pattern of the nodes' device files, as /dev/nvidia*. They must not be open to everybody; "
     "jobs "
     "with --plexrl-train=none may open them."},
    {"max_lora_rank", &PoolEntry::max_lora_rank, Form::kNumber, false, 1, 256, nullptr,
     "Largest rank of a LoRA adapter."},
    {"policy", &PoolEntry::policy, Form::kWord, false, 0, 0, "least-slowdown hrrs round-robin fifo",
     "Order in which jobs get the device group."},
    {"quantum_ms", &PoolEntry::quantum_ms, Form::kNumber, false, 1, 3600000, nullptr,
     "Turn of a job on the device group while others wait, in milliseconds: under round-robin the "
     "longest, under least-slowdown and hrrs the shortest."},
    {"lease_slice_s", &PoolEntry::lease_slice_s, Form::kNumber, false, 1, 86400, nullptr,
     "Time for which a lease keeps the device group though others wait, in seconds; then its "
     "holder is asked to yield."},
    {"lease_limit_s", &PoolEntry::lease_limit_s, Form::kNumber, false, 1, 2592000, nullptr,
     "Longest time that a lease is held in one go, in seconds; then its holder is asked to yield "
     "whoever waits."},
};

const Key<ModelEntry> kModel[] = {
    {"name", &ModelEntry::name, Form::kName, true, 0, 0, nullptr, "What --plexrl-model takes."},
    {"path", &ModelEntry::path, Form::kPath, true, 0, 0, nullptr,
     "Directory in Hugging Face layout, the same on every node of the pool."},
    {"parameters", &ModelEntry::parameters, Form::kNumber, true, 1, 1ULL << 44, nullptr,
     "Number of parameters; a tied head counts once."},
    {"hidden_size", &ModelEntry::hidden_size, Form::kNumber, true, 1, 1U << 20, nullptr,
     "hidden_size of config.json."},
    {"layers", &ModelEntry::layers, Form::kNumber, true, 1, 4096, nullptr,
     "num_hidden_layers of config.json."},
    {"intermediate_size", &ModelEntry::intermediate_size, Form::kNumber, true, 1, 1U << 22, nullptr,
     "intermediate_size of config.json."},
    {"attention_size", &ModelEntry::attention_size, Form::kNumber, false, 0, 1U << 20, nullptr,
     "Attention heads times head size; 0 means as hidden_size."},
    {"kv_size", &ModelEntry::kv_size, Form::kNumber, false, 0, 1U << 20, nullptr,
     "Key/value heads times head size; 0 means as attention_size."},
    {"bytes_per_parameter", &ModelEntry::bytes_per_parameter, Form::kNumber, false, 2, 4, nullptr,
     "Of the files: 4 for float32, 2 for bfloat16."},
    {"dtype", &ModelEntry::dtype, Form::kWord, false, 0, 0, "float32 bfloat16",
     "What the model's weights are while it is computed, whatever its files hold. bfloat16 halves "
     "the memory of the base and is faster with AVX512-BF16; what is trained stays in float32, and "
     "so "
     "do sums. It is read when an engine starts: end the model's jobs before it is changed."},
};

const Key<DaemonEntry> kDaemon[] = {
    {"user", &DaemonEntry::user, Form::kUser, false, 0, 0, nullptr,
     "User that plexrld and its engines run as; 'plexrl config slurm' writes it for the unit."},
    {"run_dir", &DaemonEntry::run_dir, Form::kPath, false, 0, 0, nullptr,
     "Directory of the sockets plexrld.sock and http.sock."},
    {"state_dir", &DaemonEntry::state_dir, Form::kPath, false, 0, 0, nullptr,
     "Directory of the daemon's database and of saved models."},
    {"engine_program", &DaemonEntry::engine_program, Form::kPath, false, 0, 0, nullptr,
     "The program plexrl-engine. Without it: the installed one."},
    {"admin_groups", &DaemonEntry::admin_groups, Form::kUser, false, 0, 0, nullptr,
     "Groups that may see every job and administer the daemon, besides root."},
    {"engine_threads", &DaemonEntry::engine_threads, Form::kNumber, false, 1, 1024, nullptr,
     "Threads of each engine."},
    {"max_queued_ops_per_tenant", &DaemonEntry::max_queued_ops_per_tenant, Form::kNumber, false, 1,
     65536, nullptr, "Operations that a job may have waiting; more are answered with BUSY."},
    {"max_connections", &DaemonEntry::max_connections, Form::kNumber, false, 8, 65536, nullptr,
     "Connections that the daemon serves at once."},
    {"max_http_connections", &DaemonEntry::max_http_connections, Form::kNumber, false, 8, 65536,
     nullptr, "HTTP connections that the daemon serves at once; each user may have half of them."},
    {"http_address", &DaemonEntry::http_address, Form::kAddress, false, 0, 0, nullptr,
     "Where the daemon serves HTTP by TCP beside http.sock, such as 127.0.0.1:585; on every node "
     "the same. Only 127.0.0.0/8: there is no TLS. The port is below 1024, or systemd holds it "
     "(plexrld-http.socket), so that nobody takes its place. Jobs that were submitted with "
     "--plexrl-env are served there. Without it there is no TCP port, and that option is refused."},
    {"max_frame_mib", &DaemonEntry::max_frame_mib, Form::kNumber, false, 1, 1024, nullptr,
     "Largest message from a client, in MiB."},
    {"chunk_kib", &DaemonEntry::chunk_kib, Form::kNumber, false, 64, 1048576, nullptr,
     "Unit in which memory is handed out, in KiB; a multiple of 64."},
    {"yield_timeout_ms", &DaemonEntry::yield_timeout_ms, Form::kNumber, false, 100, 3600000,
     nullptr,
     "Time in which an operation must stop when asked, in milliseconds; then its engine "
     "is ended and recovered."},
    {"store_quota_mib", &DaemonEntry::store_quota_mib, Form::kNumber, false, 0, kMaxMib, nullptr,
     "Room for saved models of one user on a node, in MiB."},
    {"retention_s", &DaemonEntry::retention_s, Form::kNumber, false, 0, 2592000, nullptr,
     "Time for which the state of an ended job is kept in case it is requeued, in seconds; a new "
     "job that needs the memory gets it at once."},
    {"log_level", &DaemonEntry::log_level, Form::kWord, false, 0, 0,
     "error warning info debug trace", "How much the daemon logs."},
};

}  // namespace

std::span<const Key<SiteConfig>> site_keys() { return kSite; }
std::span<const Key<PoolEntry>> pool_keys() { return kPool; }
std::span<const Key<ModelEntry>> model_keys() { return kModel; }
std::span<const Key<DaemonEntry>> daemon_keys() { return kDaemon; }

}  // namespace plexrl::config
