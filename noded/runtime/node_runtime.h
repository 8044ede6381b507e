// SPDX-License-Identifier: Apache-2.0
// NodeRuntime: plexrld without its sockets; puts the parts together and drives their clocks.
//
// Life: create, start(), then `ready` is called once the pools are settled (at once, unless engines
// of an earlier plexrld have to answer first); drain() and detach() end it. Loop thread only.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "runtime/checkpoint_store.h"
#include "runtime/device_watch.h"
#include "runtime/journal_writer.h"
#include "runtime/lease_service.h"
#include "runtime/op_files.h"
#include "runtime/profile_book.h"
#include "runtime/reattach.h"
#include "runtime/region_service.h"
#include "runtime/tenant_service.h"
#include "store/async_store.h"

namespace plexrl::runtime {

struct NodeOptions {
  std::string node;
  std::string run_dir;
  std::string state_dir;
  std::string boot_id;  // of the kernel; another one than before: no job of before lives
};

// What the composition root brings along.
struct NodeSeams {
  const Clock& clock;
  store::AsyncStore& store;  // outlives the runtime
  EngineSupervisor::Factory engines;
  std::function<Result<Pools>(const state::PoolSizes&)> create_pools;
  // Whether an engine of an earlier plexrld may still serve this spec.
  std::function<bool(const engine::EngineSpec&)> may_run;
  TenantTable::TokenSource tokens;
  std::function<void(TimePoint)> alarm;  // call tick() then
  // Ends engines of an earlier plexrld that are none of these; may be empty.
  std::function<void(const std::set<EngineId>&)> end_stray_engines{};
  // Later, on this thread; for the disk tier.
  std::function<void(std::function<void()>)> post{};
  std::function<Result<std::unique_ptr<store::BlobStore>>(const std::string& directory)>
      open_blobs{};
  Reaper* reaper = nullptr;                     // none: leases cannot be ended by force
  device::DeviceUsers* device_users = nullptr;  // none: nobody says who uses the device
};

class NodeRuntime final : public EngineWatcher {
 public:
  // `config` must have a pool for options.node.
  [[nodiscard]] static Result<std::unique_ptr<NodeRuntime>> create(config::SiteConfig config,
                                                                   NodeOptions options,
                                                                   NodeSeams seams);
  ~NodeRuntime() override;

  // CORRUPT, IO: the store. NO_CAPACITY: the configured pools cannot be made.
  [[nodiscard]] Status start(std::function<void(const Status&)> ready);
  void tick();
  // Asks running ops to yield; true when none runs any more and everything is on disk.
  [[nodiscard]] bool drain();
  void detach();
  // Takes what may change while jobs run (log level, users and groups, limits); INVALID_ARGUMENT
  // names what cannot and leaves everything as it was.
  [[nodiscard]] Status reload(const config::SiteConfig& config);

  [[nodiscard]] bool is_ready() const { return live_ != nullptr; }
  [[nodiscard]] bool draining() const { return draining_; }
  void set_draining(bool draining) { draining_ = draining; }
  // The server tells which tenants have connections, and closes those of a tenant that ended.
  void set_connection_hooks(std::function<std::set<TenantId>()> connected,
                            std::function<void(TenantId)> close);

  // Valid once ready.
  [[nodiscard]] TenantService& tenant_service();
  [[nodiscard]] ModelService& model_service();
  [[nodiscard]] OpService& op_service();
  [[nodiscard]] LeaseService& lease_service();
  [[nodiscard]] RegionService& region_service();
  [[nodiscard]] Dispatcher& dispatcher();
  [[nodiscard]] state::StateManager& state();

  [[nodiscard]] const config::SiteConfig& config() const { return config_; }
  [[nodiscard]] const config::PoolEntry& pool() const { return pool_; }
  [[nodiscard]] const NodeOptions& options() const { return options_; }
  [[nodiscard]] const Clock& clock() const { return seams_.clock; }
  [[nodiscard]] TimePoint started() const { return started_; }
  [[nodiscard]] const state::PoolSizes& pool_sizes() const { return sizes_; }
  [[nodiscard]] TenantTable& tenants() { return tenants_; }
  [[nodiscard]] ModelTable& models() { return models_; }
  [[nodiscard]] OpTable& ops() { return *ops_; }
  [[nodiscard]] TaskWatch& tasks() { return tasks_; }
  [[nodiscard]] FlowTable& flows() { return flows_; }
  [[nodiscard]] const DeviceWatch& device_watch() const { return device_watch_; }
  [[nodiscard]] Accounting& accounting() { return accounting_; }
  [[nodiscard]] const ProfileBook& profile_book() const { return profile_book_; }
  [[nodiscard]] EngineSupervisor& engines() { return engines_; }
  [[nodiscard]] const OpLog& log() const { return log_; }
  [[nodiscard]] CheckpointStore& checkpoints() { return checkpoints_; }
  // Why the store does not take training ops and results; empty while it does.
  [[nodiscard]] const std::string& store_trouble() const { return log_.trouble(); }

  void engine_ready(EngineId engine, const wire::EngineHelloT& hello) override;
  void engine_lost(EngineId engine, const Status& why) override;
  void engine_failing(EngineId engine, const Status& why) override;

 private:
  struct Live;  // what needs the pools

  NodeRuntime(config::SiteConfig config, const config::PoolEntry& pool, NodeOptions options,
              NodeSeams seams);
  [[nodiscard]] Status load();
  [[nodiscard]] Status next_generation();
  void end_stray_engines();
  void start_engines(bool survivors);
  void settle();
  [[nodiscard]] Status try_settle();
  [[nodiscard]] Result<state::DiskOptions> open_disk();
  [[nodiscard]] Result<bool> settle_pools();
  void wake(TimePoint when);
  [[nodiscard]] TimePoint retry_store(TimePoint now);
  [[nodiscard]] std::set<pid_t> device_holders();
  void save_usage();
  void begin_journal(const core::Scheduler& scheduler);
  void engine_usable(EngineId engine);

  config::SiteConfig config_;
  config::PoolEntry pool_;
  NodeOptions options_;
  NodeSeams seams_;
  state::PoolSizes sizes_;
  TimePoint started_;
  TimePoint settle_by_;
  TimePoint store_retry_;
  TimePoint usage_saved_;
  TimePoint next_alarm_;
  bool draining_ = false;
  bool rebooted_ = false;
  std::uint64_t generation_ = 0;
  std::function<void(const Status&)> ready_;
  std::function<std::set<TenantId>()> connected_;
  std::function<void(TenantId)> close_connections_;

  TenantTable tenants_;
  ModelTable models_;
  OpLog log_;
  FlowTable flows_;
  Accounting accounting_;
  ProfileBook profile_book_;
  TaskWatch tasks_;
  DeviceWatch device_watch_;
  CheckpointStore checkpoints_;
  StoreFiles files_;
  JournalWriter journal_;
  std::unique_ptr<OpTable> ops_;
  EngineSupervisor engines_;
  Pools pools_;
  std::unique_ptr<store::BlobStore> blobs_;  // copies from and to the host pool
  std::set<EngineId> started_engines_;
  std::set<EngineId> survivors_;  // were asked before the pools were settled
  std::unique_ptr<Live> live_;
};

}  // namespace plexrl::runtime
