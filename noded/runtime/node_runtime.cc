// SPDX-License-Identifier: Apache-2.0
#include "runtime/node_runtime.h"

#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "runtime/host_memory.h"

namespace plexrl::runtime {
namespace {

constexpr std::string_view kNodeTable = "node";
constexpr std::uint64_t kGenerationRow = 1;
constexpr std::uint64_t kBootRow = 2;
constexpr std::uint64_t kPoolsRow = 3;
// An engine that lives answers its connection within milliseconds; one that is stopped or swapped
// out must not keep the node down for longer than a prolog waits.
constexpr Duration kSettleWait{10 * kSecond.ns};
// A full disk is looked at this often; each look is a small write.
constexpr Duration kStoreRetry{kSecond.ns};
// One small row per job that has worked since; a kill loses at most so much of the accounts.
constexpr Duration kSaveUsageEvery{60 * kSecond.ns};
// Op numbers of one generation: 2^40 ops are 35 years at 1,000 per second.
constexpr unsigned kGenerationShift = 40;

state::PoolSizes sizes_of(const config::SiteConfig& config, const config::PoolEntry& pool) {
  state::PoolSizes sizes;
  sizes.chunk_bytes = config.daemon.chunk_kib << 10;
  const std::uint64_t device_mib = pool.device_memory_mib - pool.activation_memory_mib;
  sizes.device_chunks = static_cast<std::uint32_t>((device_mib << 20) / sizes.chunk_bytes);
  sizes.host_chunks = static_cast<std::uint32_t>((pool.host_memory_mib << 20) / sizes.chunk_bytes);
  return sizes;
}

core::SchedulerConfig scheduling_of(const config::PoolEntry& pool, const state::PoolSizes& sizes) {
  core::SchedulerConfig scheduling;
  scheduling.device_capacity_bytes = sizes.chunk_bytes * sizes.device_chunks;
  scheduling.policy = pool.policy;
  scheduling.quantum = Duration{static_cast<std::int64_t>(pool.quantum_ms) * kMillisecond.ns};
  return scheduling;
}

Duration seconds(std::uint64_t count) {
  return Duration{static_cast<std::int64_t>(count) * kSecond.ns};
}

LeaseLimits lease_limits(const config::SiteConfig& config, const config::PoolEntry& pool,
                         const state::PoolSizes& sizes) {
  return {sizes.chunk_bytes * sizes.device_chunks, seconds(pool.lease_slice_s),
          seconds(pool.lease_limit_s),
          Duration{static_cast<std::int64_t>(config.daemon.yield_timeout_ms) * kMillisecond.ns}};
}

class NoReaper final : public Reaper {
 public:
  [[nodiscard]] Status stop(const ReapRequest&) override {
    return error(Code::UNAVAILABLE, "this plexrld has no way to stop processes");
  }
  [[nodiscard]] Status last() override { return {}; }
};

Reaper& reaper_or_none(Reaper* reaper) {
  static NoReaper none;
  return reaper == nullptr ? none : *reaper;
}

bool same(const state::PoolSizes& a, const state::PoolSizes& b) {
  return a.chunk_bytes == b.chunk_bytes && a.device_chunks == b.device_chunks &&
         a.host_chunks == b.host_chunks;
}

// Keys that hold as long as the process and that differ, with ", " between.
std::string fixed_changes(const config::SiteConfig& site, const config::PoolEntry& pool,
                          const config::SiteConfig& fresh, const config::PoolEntry& fresh_pool) {
  const struct {
    const char* key;
    bool changed;
  } rows[] = {
      {"cluster", fresh.cluster != site.cluster},
      {"host_memory_mib", fresh_pool.host_memory_mib != pool.host_memory_mib},
      {"kv_host_mib", fresh_pool.kv_host_mib != pool.kv_host_mib},
      {"device_memory_mib", fresh_pool.device_memory_mib != pool.device_memory_mib},
      {"activation_memory_mib", fresh_pool.activation_memory_mib != pool.activation_memory_mib},
      {"disk_tier_dir", fresh_pool.disk_tier_dir != pool.disk_tier_dir},
      {"disk_tier_mib", fresh_pool.disk_tier_mib != pool.disk_tier_mib},
      {"device", fresh_pool.device != pool.device},
      {"policy", fresh_pool.policy != pool.policy},
      {"quantum_ms", fresh_pool.quantum_ms != pool.quantum_ms},
      {"chunk_kib", fresh.daemon.chunk_kib != site.daemon.chunk_kib},
      {"run_dir", fresh.daemon.run_dir != site.daemon.run_dir},
      {"state_dir", fresh.daemon.state_dir != site.daemon.state_dir},
      {"http_address", fresh.daemon.http_address != site.daemon.http_address},
  };
  std::string keys;
  for (const auto& row : rows)
    if (row.changed) keys += (keys.empty() ? "" : ", ") + std::string(row.key);
  return keys;
}

TimePoint earlier(TimePoint a, TimePoint b) {
  if (a.ns == 0) return b;
  return b.ns == 0 ? a : std::min(a, b);
}

}  // namespace

// Built when the pools are settled; destroyed before the tables that it works on.
struct NodeRuntime::Live {
  Live(NodeRuntime& node, std::unique_ptr<state::StateManager> manager,
       std::unique_ptr<core::Scheduler> core);

  std::unique_ptr<state::StateManager> state;
  std::unique_ptr<core::Scheduler> scheduler;
  OpResults results;
  OpService service;
  Dispatcher dispatcher;
  LeaseService lease_service;
  RegionService region_service;
  Recovery recovery;
  ModelService model_service;
  TenantService tenant_service;
  Reattach reattach;
};

NodeRuntime::Live::Live(NodeRuntime& node, std::unique_ptr<state::StateManager> manager,
                        std::unique_ptr<core::Scheduler> core)
    : state(std::move(manager)),
      scheduler(std::move(core)),
      results(node.seams_.clock, *node.ops_, node.log_, node.accounting_),
      service({node.models_, *node.ops_, node.log_, node.flows_, results, node.accounting_,
               node.sizes_.chunk_bytes}),
      dispatcher({node.seams_.clock, *scheduler, node.engines_, node.models_, *state, *node.ops_,
                  node.accounting_, node.files_, service,
                  [&node](const core::Event& event, TimePoint at, const core::Actions& actions) {
                    node.journal_.record(event, at, actions);
                  },
                  [&node](TimePoint when) { node.wake(when); },
                  Duration{static_cast<std::int64_t>(node.config_.daemon.yield_timeout_ms) *
                           kMillisecond.ns}}),
      lease_service(
          {node.seams_.clock, lease_limits(node.config_, node.pool_, node.sizes_), node.tenants_,
           *node.ops_, results, dispatcher, node.seams_.store, reaper_or_none(node.seams_.reaper),
           [&node](TimePoint when) { node.wake(when); }, [this] { tenant_service.lease_gone(); }}),
      region_service(*state),
      recovery(
          {node.models_, *node.ops_, node.log_, node.flows_, results, service, dispatcher, *state}),
      model_service({node.config_, node.pool_, node.options_.run_dir, node.models_, node.tenants_,
                     node.log_, node.flows_, service, recovery, dispatcher, node.engines_, *state}),
      tenant_service({node.seams_.clock, node.pool_, node.config_.daemon, node.tenants_,
                      node.tasks_, node.models_, *node.ops_, model_service, service,
                      node.accounting_, node.profile_book_, *state},
                     [this, &node](TenantId tenant) {
                       lease_service.tenant_closed(tenant);
                       if (node.close_connections_) node.close_connections_(tenant);
                     }),
      reattach({node.engines_, node.models_, *node.ops_, node.log_, node.flows_, service,
                dispatcher, recovery},
               [&node](EngineId engine) { node.engine_usable(engine); }) {
  service.connect(dispatcher, *state);
  dispatcher.set_leases(lease_service);
  service.set_replay_handler(
      [this](ModelId model, const Status& status) { recovery.replayed(model, status); });
  service.set_rollback_handler(
      [this](ModelId model, const Status& why) { recovery.recover(model, why); });
  service.set_gone_handler([this](ModelId model) {
    model_service.gone(model);
    tenant_service.model_gone();
  });
}

Result<std::unique_ptr<NodeRuntime>> NodeRuntime::create(config::SiteConfig config,
                                                         NodeOptions options, NodeSeams seams) {
  const config::PoolEntry* const pool = config.pool_of_node(options.node);
  if (pool == nullptr)
    return error(Code::NOT_FOUND,
                 "node '%s' is in no pool of the configuration; see --node and 'nodes'",
                 options.node.c_str());
  const config::PoolEntry copy = *pool;
  return std::unique_ptr<NodeRuntime>(
      new NodeRuntime(std::move(config), copy, std::move(options), std::move(seams)));
}

NodeRuntime::NodeRuntime(config::SiteConfig config, const config::PoolEntry& pool,
                         NodeOptions options, NodeSeams seams)
    : config_(std::move(config)),
      pool_(pool),
      options_(std::move(options)),
      seams_(std::move(seams)),
      sizes_(sizes_of(config_, pool_)),
      started_(seams_.clock.now()),
      tenants_(seams_.store, seams_.tokens),
      models_(seams_.store),
      log_(seams_.store),
      accounting_(seams_.store),
      profile_book_(seams_.store),
      tasks_(seams_.store),
      device_watch_(seams_.device_users),
      checkpoints_(options_.state_dir + "/store", config_.daemon.store_quota_mib << 20),
      files_(checkpoints_, tenants_),
      journal_(options_.state_dir + "/journal"),
      engines_(seams_.clock, seams_.engines, *this, [this](TimePoint when) { wake(when); }) {}

// What was written still reaches the disk; nobody is left to hear of it.
NodeRuntime::~NodeRuntime() { seams_.store.abandon(); }

// ---- start ----

Status NodeRuntime::start(std::function<void(const Status&)> ready) {
  ready_ = std::move(ready);
  PLEXRL_TRY(load());
  end_stray_engines();
  settle_by_ = seams_.clock.now() + kSettleWait;
  start_engines(true);
  if (engines_.pending() == 0) {
    settle();
  } else {
    wake(seams_.clock.now() + kMillisecond);
  }
  return {};
}

Status NodeRuntime::load() {
  PLEXRL_TRY(next_generation());
  PLEXRL_TRY(checkpoints_.open());
  PLEXRL_TRY(tenants_.load());
  PLEXRL_TRY(models_.load());
  PLEXRL_TRY(log_.load());
  PLEXRL_TRY(accounting_.load());
  PLEXRL_TRY(profile_book_.load());
  for (const auto& [id, tenant] : tenants_.all())
    if (!tenant.open()) accounting_.ended(id);
  PLEXRL_TRY(tasks_.load());
  ops_ = std::make_unique<OpTable>(OpId{(generation_ << kGenerationShift) + 1},
                                   config_.daemon.max_queued_ops_per_tenant);
  return {};
}

Status NodeRuntime::next_generation() {
  const auto last = seams_.store.get(kNodeTable, kGenerationRow, 0);
  if (!last && last.error().code() != Code::NOT_FOUND) return last.error();
  if (last) generation_ = std::strtoull(last->c_str(), nullptr, 10);
  ++generation_;
  PLEXRL_TRY(seams_.store.put(kNodeTable, kGenerationRow, 0, std::to_string(generation_)));
  const auto boot = seams_.store.get(kNodeTable, kBootRow, 0);
  rebooted_ = boot.has_value() && *boot != options_.boot_id;
  return seams_.store.put(kNodeTable, kBootRow, 0, options_.boot_id);
}

// Nobody would connect to an engine whose row is gone; its memory is needed now, and its number may
// be given again.
void NodeRuntime::end_stray_engines() {
  if (!seams_.end_stray_engines) return;
  std::set<EngineId> known;
  for (const auto& [id, row] : models_.engines()) known.insert(id);
  seams_.end_stray_engines(known);
}

// Survivors first: what they hold decides which pools all others get.
void NodeRuntime::start_engines(bool survivors) {
  for (const auto& [id, row] : models_.engines()) {
    if (started_engines_.count(id) != 0) continue;
    engine::EngineSpec spec = engine_spec(config_, pool_, options_.run_dir, row);
    if (survivors && !seams_.may_run(spec)) continue;
    started_engines_.insert(id);
    if (survivors) survivors_.insert(id);
    engines_.add(std::move(spec));
  }
}

void NodeRuntime::settle() {
  engines_.end_silent();
  const Status status = try_settle();
  if (status.ok()) {
    start_engines(false);
    engines_.settle(pools_);
    wake(seams_.clock.now() + kSecond);
  }
  ready_(status);
}

// True when the pools are new, that is, the host tier holds nothing. The stored manifests speak of
// the pools that are in the store, and of no others.
Result<bool> NodeRuntime::settle_pools() {
  const auto known = seams_.store.get(kNodeTable, kPoolsRow, 0);
  if (!known && known.error().code() != Code::NOT_FOUND) return known.error();
  auto held = known ? engines_.take_held_pools(*known) : std::nullopt;
  if (held && same(held->sizes, sizes_)) {
    pools_ = *std::move(held);
    return false;
  }
  if (held)
    PLEXRL_LOG(
        kError,
        "the engines hold pools of other sizes than configured; state in host memory is lost");
  PLEXRL_ASSIGN(pools_, seams_.create_pools(sizes_));
  pools_.sizes = sizes_;
  PLEXRL_ASSIGN(pools_.identity, pool_identity(pools_.device.get(), pools_.host.get()));
  PLEXRL_TRY(seams_.store.put(kNodeTable, kPoolsRow, 0, pools_.identity));
  return true;
}

Result<state::DiskOptions> NodeRuntime::open_disk() {
  state::DiskOptions disk;
  blobs_.reset();
  if (pool_.disk_tier_dir.empty()) return disk;
  PLEXRL_ASSIGN(blobs_, seams_.open_blobs(pool_.disk_tier_dir));
  PLEXRL_LOG(kInfo, "disk tier: %llu MiB in '%s', %s",
             static_cast<unsigned long long>(pool_.disk_tier_mib), pool_.disk_tier_dir.c_str(),
             blobs_->method().c_str());
  disk.blobs = blobs_.get();
  PLEXRL_ASSIGN(disk.memory, host_memory(pools_));
  disk.post = seams_.post;
  disk.chunks = static_cast<std::uint32_t>((pool_.disk_tier_mib << 20) / sizes_.chunk_bytes);
  disk.kv_chunks = static_cast<std::uint32_t>((pool_.kv_host_mib << 20) / sizes_.chunk_bytes);
  return disk;
}

Status NodeRuntime::try_settle() {
  PLEXRL_ASSIGN(const bool fresh, settle_pools());
  PLEXRL_ASSIGN(auto disk, open_disk());
  PLEXRL_ASSIGN(auto manager,
                state::open_state_manager(sizes_, seams_.store, fresh, std::move(disk)));
  PLEXRL_ASSIGN(auto scheduler, core::Scheduler::create(scheduling_of(pool_, sizes_)));
  manager->set_expected([core = scheduler.get()] { return core->waiting_models(); });
  // Numbers up to a manifest's must have their results on disk: a restart takes those without one
  // for ops that ran.
  manager->set_before_manifest([this](ModelId model) { log_.push(model); });
  begin_journal(*scheduler);
  auto live = std::make_unique<Live>(*this, std::move(manager), std::move(scheduler));
  PLEXRL_TRY(live->tenant_service.restore(rebooted_));
  PLEXRL_TRY(live->model_service.restore());
  files_.keep_held([this](const CheckpointStore::Holder& holder) {
    const auto logged = log_.logged(holder.model);
    return std::binary_search(logged.begin(), logged.end(), holder.seq);
  });
  PLEXRL_TRY(live->lease_service.restore());
  live_ = std::move(live);
  return {};
}

// The journal explains decisions; a node whose disk refuses it works without.
void NodeRuntime::begin_journal(const core::Scheduler& scheduler) {
  core::JournalHeader header;
  header.config = scheduling_of(pool_, sizes_);
  if (const Status status = journal_.begin(std::move(header), scheduler); !status.ok())
    PLEXRL_LOG(kWarning, "no journal: %s", status.to_string().c_str());
}

// ---- engines ----

void NodeRuntime::engine_ready(EngineId engine, const wire::EngineHelloT& hello) {
  const bool survivor = hello.host_chunks != 0 && survivors_.erase(engine) != 0;
  live_->reattach.engine_ready(engine, hello, survivor);
}

void NodeRuntime::engine_usable(EngineId engine) {
  const EngineRow* const row = models_.engine(engine);
  const bool known = !row->base_model || row->base_known;
  if (known) live_->dispatcher.engine_up(engine);
  live_->model_service.engine_up(engine);
}

// Manifests that are on their way to the disk are true first: recovery starts from what is stored.
void NodeRuntime::engine_lost(EngineId engine, const Status&) {
  survivors_.erase(engine);
  seams_.store.settle();
  live_->recovery.engine_lost(engine);
}

void NodeRuntime::engine_failing(EngineId engine, const Status& why) {
  if (live_) live_->model_service.engine_failing(engine, why);
}

// ---- time ----

void NodeRuntime::wake(TimePoint when) {
  if (next_alarm_.ns != 0 && next_alarm_ <= when) return;
  next_alarm_ = when;
  if (seams_.alarm) seams_.alarm(when);
}

void NodeRuntime::tick() {
  const TimePoint now = seams_.clock.now();
  next_alarm_ = {};
  journal_.flush();
  if (live_ && journal_.wants_new_segment()) begin_journal(*live_->scheduler);
  TimePoint next = engines_.tick(now);
  if (live_) {
    next = earlier(next, live_->dispatcher.tick(now));
    next = earlier(next, live_->lease_service.tick(now));
    next = earlier(next, device_watch_.tick(now, [this] { return device_holders(); }));
    next = earlier(next, retry_store(now));
    if (now >= usage_saved_ + kSaveUsageEvery) {
      usage_saved_ = now;
      save_usage();
    }
    next = earlier(
        next, live_->tenant_service.tick(now, connected_ ? connected_() : std::set<TenantId>{}));
  } else if (engines_.pending() == 0 || now >= settle_by_) {
    settle();
  } else {
    next = earlier(next, now + Duration{5 * kMillisecond.ns});
  }
  if (next.ns != 0) wake(next);
}

// Who may use the device now.
std::set<pid_t> NodeRuntime::device_holders() {
  std::set<pid_t> pids = live_->lease_service.holder_pids();
  for (const auto& [id, row] : models_.engines()) pids.insert(engines_.view(id).pid);
  return pids;
}

// What the store did not take, a full disk as a rule, is offered again until it does.
TimePoint NodeRuntime::retry_store(TimePoint now) {
  if (log_.trouble().empty() && !models_.in_doubt() && !tenants_.in_doubt()) return {};
  if (now >= store_retry_) {
    log_.retry();
    models_.settle_doubt();
    tenants_.settle_doubt();
    store_retry_ = now + kStoreRetry;
  }
  return store_retry_;
}

// ---- end ----

bool NodeRuntime::drain() {
  draining_ = true;
  if (!live_) return true;
  if (!live_->dispatcher.draining()) live_->dispatcher.drain();
  return live_->dispatcher.idle() && seams_.store.idle();
}

void NodeRuntime::detach() {
  save_usage();
  engines_.detach_all();
}

void NodeRuntime::save_usage() {
  accounting_.advance(seams_.clock.now());
  accounting_.save();
}

Status NodeRuntime::reload(const config::SiteConfig& fresh) {
  const config::PoolEntry* const pool = fresh.pool_of_node(options_.node);
  if (pool == nullptr || pool->name != pool_.name)
    return error(Code::INVALID_ARGUMENT,
                 "the node's pool cannot change while plexrld runs; restart it");
  if (const std::string keys = fixed_changes(config_, pool_, fresh, *pool); !keys.empty())
    return error(Code::INVALID_ARGUMENT, "%s cannot change while plexrld runs; restart it",
                 keys.c_str());
  pool_ = *pool;
  config_ = fresh;
  if (live_) live_->lease_service.set_limits(lease_limits(config_, pool_, sizes_));
  return {};
}

void NodeRuntime::set_connection_hooks(std::function<std::set<TenantId>()> connected,
                                       std::function<void(TenantId)> close) {
  connected_ = std::move(connected);
  close_connections_ = std::move(close);
}

TenantService& NodeRuntime::tenant_service() { return live_->tenant_service; }
ModelService& NodeRuntime::model_service() { return live_->model_service; }
OpService& NodeRuntime::op_service() { return live_->service; }
RegionService& NodeRuntime::region_service() { return live_->region_service; }
LeaseService& NodeRuntime::lease_service() { return live_->lease_service; }
Dispatcher& NodeRuntime::dispatcher() { return live_->dispatcher; }
state::StateManager& NodeRuntime::state() { return *live_->state; }

}  // namespace plexrl::runtime
