// SPDX-License-Identifier: Apache-2.0
// ModelTable: the models of all tenants and the engines that host them. Ids are node-wide and never
// used again within one store. Rows are durable; the training position of a resident model is not
// (it comes from the manifest or from the engine). Loop thread only.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/strong_id.h"
#include "engine_generated.h"
#include "state/segment.h"

namespace plexrl::store {
class AsyncStore;
}

namespace plexrl::runtime {

// What an engine says about a (base, mode, rank); see EngineDescription.
struct ModelShape {
  std::vector<state::SegmentSpec> segments;
  std::uint32_t vocab_size = 0;
  std::uint32_t max_positions = 0;
  std::uint64_t parameters = 0;
  std::uint64_t trainable_parameters = 0;
  std::uint64_t kv_bytes_per_position = 0;
  std::string tokenizer;
};
[[nodiscard]] ModelShape shape_of(const wire::EngineDescriptionT& description);

// One engine: of a base (mode Lora, hosts adapters and sampling-only models) or of one model
// (Full).
struct EngineRow {
  EngineId id;
  std::string base;
  wire::TrainMode mode = wire::TrainMode::Lora;
  ModelId base_model;  // the base itself, as the core and the state manager know it; Lora only
  std::vector<state::SegmentSpec> base_segments;  // empty until the engine has described it
  bool base_known = false;                        // it was added to core and state; not durable
  bool base_resident = false;                     // not durable
};

struct Model {
  ModelId id;
  TenantId tenant;
  EngineId engine;
  std::string name;
  std::string base;
  wire::TrainMode mode = wire::TrainMode::Lora;
  std::uint32_t lora_rank = 0;
  std::uint64_t seed = 0;
  ModelShape shape;
  state::Position position;          // as of the last applied op
  std::uint64_t latest_version = 0;  // newest published; not durable (from manifest and log)
  bool lost = false;                 // the next call gets LOST once; not durable (from the log)
  bool removing = false;             // takes no ops any more; not durable
  bool resident = false;             // not durable
};

class ModelTable {
 public:
  explicit ModelTable(store::AsyncStore& store) : store_(store) {}
  [[nodiscard]] Status load();

  // The engine of a base (mode Lora) when there is one.
  [[nodiscard]] EngineRow* engine_of_base(const std::string& base);
  [[nodiscard]] Status save(const EngineRow& row);
  [[nodiscard]] Result<EngineId> add_engine(const std::string& base, wire::TrainMode mode);
  // Not waited for, as remove().
  void remove_engine(EngineId id);
  [[nodiscard]] EngineRow* engine(EngineId id);
  [[nodiscard]] std::map<EngineId, EngineRow>& engines() { return engines_; }

  // Gives the model its id and stores it.
  [[nodiscard]] Result<ModelId> add(Model model);
  [[nodiscard]] Status save(const Model& model);
  // Not waited for: by the order of the store its row goes behind all that was its own. A row that
  // stays is found by the next start.
  void remove(ModelId id);
  // The store may hold rows of models or engines whose making failed.
  [[nodiscard]] bool in_doubt() const { return !left_.empty(); }
  void settle_doubt();  // erases them again
  [[nodiscard]] Model* find(ModelId id);
  [[nodiscard]] Model* find(TenantId tenant, const std::string& name);
  [[nodiscard]] std::vector<Model*> of_tenant(TenantId tenant);
  [[nodiscard]] std::vector<Model*> of_engine(EngineId engine);
  [[nodiscard]] std::map<ModelId, Model>& all() { return models_; }

  // The model as the engine numbers it: a base is 0 there.
  [[nodiscard]] std::uint64_t wire_id(ModelId id) const { return is_base(id) ? 0 : id.value; }
  [[nodiscard]] bool is_base(ModelId id) const;
  [[nodiscard]] EngineId engine_of(ModelId id) const;  // of a model or a base
  [[nodiscard]] bool resident(ModelId id) const;       // a model or a base
  void set_resident(ModelId id, bool resident);

 private:
  [[nodiscard]] Result<ModelId> next_model_id();
  void erase_later(const std::string& table, std::uint64_t key);
  store::AsyncStore& store_;
  std::map<EngineId, EngineRow> engines_;
  std::map<ModelId, Model> models_;
  std::set<std::pair<std::string, std::uint64_t>> left_;  // table and key
  std::uint64_t last_model_ = 0;
  std::uint64_t last_engine_ = 0;
};

}  // namespace plexrl::runtime
