// SPDX-License-Identifier: Apache-2.0
#include "runtime/model_table.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "store/async_store.h"

namespace plexrl::runtime {
namespace {

using nlohmann::json;

constexpr const char* kModels = "models";
constexpr const char* kEngines = "engines";
// The last model number that was given out, so that a removed model's is not used again.
constexpr std::string_view kCounters = "counters";
constexpr std::uint64_t kModelCounter = 1;

json encode_segments(const std::vector<state::SegmentSpec>& list) {
  json segments = json::array();
  for (const auto& s : list) segments.push_back({static_cast<int>(s.kind), s.bytes, s.committed});
  return segments;
}

std::vector<state::SegmentSpec> decode_segments(const json& row) {
  std::vector<state::SegmentSpec> list;
  for (const auto& s : row)
    list.push_back({static_cast<state::SegmentKind>(s.at(0).get<int>()), s.at(1), s.at(2)});
  return list;
}

json encode_shape(const ModelShape& shape) {
  return {{"segments", encode_segments(shape.segments)},
          {"vocab_size", shape.vocab_size},
          {"max_positions", shape.max_positions},
          {"parameters", shape.parameters},
          {"trainable", shape.trainable_parameters},
          {"kv_bytes", shape.kv_bytes_per_position},
          {"tokenizer", shape.tokenizer}};
}

ModelShape decode_shape(const json& row) {
  ModelShape shape;
  shape.segments = decode_segments(row.at("segments"));
  shape.vocab_size = row.at("vocab_size");
  shape.max_positions = row.at("max_positions");
  shape.parameters = row.at("parameters");
  shape.trainable_parameters = row.at("trainable");
  shape.kv_bytes_per_position = row.at("kv_bytes");
  shape.tokenizer = row.at("tokenizer");
  return shape;
}

std::string encode(const Model& m) {
  return json{{"tenant", m.tenant.value}, {"engine", m.engine.value},         {"name", m.name},
              {"base", m.base},           {"mode", static_cast<int>(m.mode)}, {"rank", m.lora_rank},
              {"seed", m.seed},           {"shape", encode_shape(m.shape)}}
      .dump();
}

Model decode_model(std::uint64_t id, std::string_view text) {
  const auto row = json::parse(text);
  Model m;
  m.id = ModelId{id};
  m.tenant = TenantId{row.at("tenant")};
  m.engine = EngineId{row.at("engine")};
  m.name = row.at("name");
  m.base = row.at("base");
  m.mode = static_cast<wire::TrainMode>(row.at("mode").get<int>());
  m.lora_rank = row.at("rank");
  m.seed = row.at("seed");
  m.shape = decode_shape(row.at("shape"));
  return m;
}

EngineRow decode_engine(std::uint64_t id, std::string_view text) {
  const auto row = json::parse(text);
  EngineRow e;
  e.id = EngineId{id};
  e.base = row.at("base");
  e.mode = static_cast<wire::TrainMode>(row.at("mode").get<int>());
  e.base_model = ModelId{row.at("base_model")};
  e.base_segments = decode_segments(row.at("base_segments"));
  return e;
}

// Runs `take` on every row of `table`; a row that cannot be read makes the whole load CORRUPT.
template <class Take>
Status load_rows(store::StateStore& store, std::string_view table, const Take& take) {
  Status bad;
  PLEXRL_TRY(store.scan(table, [&](std::uint64_t key, std::uint64_t, std::string_view value) {
    try {
      take(key, value);
    } catch (const json::exception& e) {
      bad = error(Code::CORRUPT, "row %llu of %.*s in the store: %s",
                  static_cast<unsigned long long>(key), static_cast<int>(table.size()),
                  table.data(), e.what());
    }
  }));
  return bad;
}

}  // namespace

ModelShape shape_of(const wire::EngineDescriptionT& d) {
  ModelShape shape;
  for (const auto& s : d.segments)
    shape.segments.push_back({static_cast<state::SegmentKind>(s->kind), s->bytes, s->committed});
  shape.vocab_size = d.vocab_size;
  shape.max_positions = d.max_positions;
  shape.parameters = d.parameters;
  shape.trainable_parameters = d.trainable_parameters;
  shape.kv_bytes_per_position = d.kv_bytes_per_position;
  shape.tokenizer = d.tokenizer;
  return shape;
}

Status ModelTable::load() {
  PLEXRL_TRY(load_rows(store_, kCounters, [this](std::uint64_t key, std::string_view value) {
    if (key == kModelCounter) last_model_ = json::parse(value).get<std::uint64_t>();
  }));
  PLEXRL_TRY(load_rows(store_, kModels, [this](std::uint64_t key, std::string_view value) {
    Model model = decode_model(key, value);
    last_model_ = std::max(last_model_, key);
    models_.insert_or_assign(ModelId{key}, std::move(model));
  }));
  return load_rows(store_, kEngines, [this](std::uint64_t key, std::string_view value) {
    EngineRow row = decode_engine(key, value);
    last_engine_ = std::max(last_engine_, key);
    last_model_ = std::max(last_model_, row.base_model.value);
    engines_.insert_or_assign(EngineId{key}, std::move(row));
  });
}

EngineRow* ModelTable::engine_of_base(const std::string& base) {
  for (auto& [id, row] : engines_)
    if (row.mode == wire::TrainMode::Lora && row.base == base) return &row;
  return nullptr;
}

Result<EngineId> ModelTable::add_engine(const std::string& base, wire::TrainMode mode) {
  EngineRow row;
  row.id = EngineId{++last_engine_};
  row.base = base;
  row.mode = mode;
  if (mode == wire::TrainMode::Lora) {
    PLEXRL_ASSIGN(row.base_model, next_model_id());
  }
  if (Status status = save(row); !status.ok()) {
    left_.emplace(kEngines, row.id.value);
    settle_doubt();
    return status;
  }
  engines_.emplace(row.id, row);
  return row.id;
}

Status ModelTable::save(const EngineRow& row) {
  const json value{{"base", row.base},
                   {"mode", static_cast<int>(row.mode)},
                   {"base_model", row.base_model.value},
                   {"base_segments", encode_segments(row.base_segments)}};
  return store_.put(kEngines, row.id.value, 0, value.dump());
}

Result<ModelId> ModelTable::next_model_id() {
  PLEXRL_TRY(store_.put(kCounters, kModelCounter, 0, std::to_string(last_model_ + 1)));
  return ModelId{++last_model_};
}

void ModelTable::remove_engine(EngineId id) {
  engines_.erase(id);
  erase_later(kEngines, id.value);
}

void ModelTable::erase_later(const std::string& table, std::uint64_t key) {
  store::Batch batch;
  batch.erase(table, key, 0, 0);
  store_.write(std::make_shared<const store::Batch>(std::move(batch)), [table,
                                                                        key](const Status& status) {
    if (!status.ok())
      PLEXRL_LOG(kError, "row %llu of %s stays until the next start: %s",
                 static_cast<unsigned long long>(key), table.c_str(), status.to_string().c_str());
  });
}

void ModelTable::settle_doubt() {
  for (const auto& row : std::exchange(left_, {})) {
    store::Batch batch;
    batch.erase(row.first, row.second, 0, 0);
    store_.write(std::make_shared<const store::Batch>(std::move(batch)),
                 [this, row](const Status& status) {
                   if (!status.ok()) left_.insert(row);
                 });
  }
}

EngineRow* ModelTable::engine(EngineId id) {
  const auto found = engines_.find(id);
  return found == engines_.end() ? nullptr : &found->second;
}

Result<ModelId> ModelTable::add(Model model) {
  PLEXRL_ASSIGN(model.id, next_model_id());
  if (Status status = save(model); !status.ok()) {
    left_.emplace(kModels, model.id.value);
    settle_doubt();
    return status;
  }
  const ModelId id = model.id;
  models_.emplace(id, std::move(model));
  return id;
}

Status ModelTable::save(const Model& model) {
  return store_.put(kModels, model.id.value, 0, encode(model));
}

void ModelTable::remove(ModelId id) {
  models_.erase(id);
  erase_later(kModels, id.value);
}

Model* ModelTable::find(ModelId id) {
  const auto found = models_.find(id);
  return found == models_.end() ? nullptr : &found->second;
}

Model* ModelTable::find(TenantId tenant, const std::string& name) {
  for (auto& [id, model] : models_)
    if (model.tenant == tenant && model.name == name) return &model;
  return nullptr;
}

std::vector<Model*> ModelTable::of_tenant(TenantId tenant) {
  std::vector<Model*> list;
  for (auto& [id, model] : models_)
    if (model.tenant == tenant) list.push_back(&model);
  return list;
}

std::vector<Model*> ModelTable::of_engine(EngineId engine) {
  std::vector<Model*> list;
  for (auto& [id, model] : models_)
    if (model.engine == engine) list.push_back(&model);
  return list;
}

bool ModelTable::is_base(ModelId id) const {
  return std::any_of(engines_.begin(), engines_.end(),
                     [&](const auto& row) { return id && row.second.base_model == id; });
}

bool ModelTable::resident(ModelId id) const {
  if (const auto found = models_.find(id); found != models_.end()) return found->second.resident;
  return std::any_of(engines_.begin(), engines_.end(), [&](const auto& row) {
    return row.second.base_model == id && row.second.base_resident;
  });
}

void ModelTable::set_resident(ModelId id, bool resident) {
  if (Model* const model = find(id)) model->resident = resident;
  for (auto& [engine, row] : engines_)
    if (id && row.base_model == id) row.base_resident = resident;
}

EngineId ModelTable::engine_of(ModelId id) const {
  if (const auto found = models_.find(id); found != models_.end()) return found->second.engine;
  for (const auto& [engine, row] : engines_)
    if (row.base_model == id) return engine;
  return {};
}

}  // namespace plexrl::runtime
