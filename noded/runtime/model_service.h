// SPDX-License-Identifier: Apache-2.0
// ModelService: makes and removes models. A new model needs its engine up, which tells the sizes;
// the reply waits for that. Loop thread only.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "config/site_config.h"
#include "runtime/recovery.h"
#include "runtime/tenant_table.h"

namespace plexrl::runtime {

using ModelHandler = std::function<void(Result<wire::ModelInfoT>)>;

// What the engine of this row is started with.
[[nodiscard]] engine::EngineSpec engine_spec(const config::SiteConfig& config,
                                             const config::PoolEntry& pool,
                                             const std::string& run_dir, const EngineRow& row);

class ModelService {
 public:
  static constexpr std::size_t kMaxModelsPerTenant = 16;

  struct Parts {
    const config::SiteConfig& config;
    const config::PoolEntry& pool;
    const std::string& run_dir;
    ModelTable& models;
    TenantTable& tenants;
    OpLog& log;
    FlowTable& flows;
    OpService& service;
    Recovery& recovery;
    Dispatcher& dispatcher;
    EngineSupervisor& engines;
    state::StateManager& state;
  };
  explicit ModelService(Parts parts) : parts_(parts) {}

  // The same name gives the same model, when base, mode and rank agree (else EXISTS).
  void create(TenantId tenant, wire::CreateModelT request, ModelHandler done);
  [[nodiscard]] Status remove(TenantId tenant, ModelId model);
  // Ends its ops and takes it off the device; gone() follows.
  void drop(ModelId model);
  // The dispatcher has let go of it: rows and logs go.
  void gone(ModelId model);

  // plexrld starts: what the tables hold becomes known to state manager, scheduler and streams.
  [[nodiscard]] Status restore();
  void engine_up(EngineId engine);
  void engine_failing(EngineId engine, const Status& why);

  [[nodiscard]] wire::ModelInfoT info(const Model& model) const;

 private:
  struct Wanted {
    TenantId tenant;
    wire::CreateModelT request;
    ModelHandler done;
  };
  [[nodiscard]] Status check(const Tenant& tenant, wire::CreateModelT& request) const;
  [[nodiscard]] Result<EngineId> engine_for(const wire::CreateModelT& request);
  void describe(EngineId engine, Wanted wanted);
  void describe_base(EngineId engine);
  void described(EngineId engine, const Wanted& wanted, const Result<engine::Reply>& reply);
  [[nodiscard]] Result<ModelId> admit(EngineId engine, const Wanted& wanted, ModelShape shape);
  void base_described(EngineId engine, const Result<engine::Reply>& reply);
  [[nodiscard]] Status add_base(EngineRow& row);
  [[nodiscard]] Status add_known(const Model& model);
  void release_engine(EngineId engine);
  void remove_left_over();
  [[nodiscard]] bool made_again(const Model& model) const;
  [[nodiscard]] Status add_again(ModelId id);
  void fail_wanted(EngineId engine, const Status& why);

  Parts parts_;
  std::map<EngineId, std::vector<Wanted>> wanted_;
};

}  // namespace plexrl::runtime
