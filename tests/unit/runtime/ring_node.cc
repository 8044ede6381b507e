// SPDX-License-Identifier: Apache-2.0
#include "ring_node.h"

#include <array>

#include "base/log.h"
#include "device/device_backend.h"
#include "state/manifest_codec.h"

namespace plexrl::runtime {
namespace {

constexpr Duration kSlowDisk{3 * kMillisecond.ns};
constexpr Duration kDrainTime{20 * kSecond.ns};
constexpr Duration kDrainPoll{20 * kMillisecond.ns};
constexpr std::uint32_t kHostChunks = 96;  // 6 MiB of 64 KiB

constexpr std::array kPolicies{"fifo", "round-robin", "hrrs", "least-slowdown"};

config::SiteConfig make_config(Random& random, bool with_disk) {
  config::SiteConfig config;
  config.cluster = "test";
  config::PoolEntry pool;
  pool.name = "rl";
  pool.nodes = {"n1"};
  pool.models = {"tiny"};
  pool.host_memory_mib = with_disk ? 2 : 6;
  pool.device_memory_mib = 1;  // 16 chunks: the base and three models, or three full ones
  pool.quantum_ms = 5;
  pool.policy = kPolicies[random.below(kPolicies.size())];
  pool.kv_host_mib = 1;
  pool.lease_slice_s = 1;
  pool.lease_limit_s = 5;
  if (with_disk) {
    pool.disk_tier_dir = "blobs";
    pool.disk_tier_mib = 6;
  }
  config.pools.push_back(pool);
  config::ModelEntry model;
  model.name = "tiny";
  model.path = "nowhere";
  config.models.push_back(model);
  config.daemon.chunk_kib = 64;
  config.daemon.yield_timeout_ms = 2000;
  // A job that was requeued comes back in time however long plexrld cannot start.
  config.daemon.retention_s = 3600;
  return config;
}

}  // namespace

RingNode::RingNode(VirtualWorld& world, RingScript& script, Broken& broken, std::string folder)
    : world_(world),
      script_(script),
      broken_(broken),
      folder_(std::move(folder)),
      config_(make_config(world.random, script.with_disk)),
      ledger_(broken) {
  fake_options_.segment_bytes = 1024;
  faulty_.of_batch = [this](const store::Batch& batch) { return fault_of(batch); };
  blobs_->fault = [this](store::MemoryDisk::Verb, BlobId) {
    return script_.happens(&Faults::blob_fails) ? error(Code::IO, "a blob that fails") : Status();
  };
}

RingNode::~RingNode() {
  if (writes_) writes_->drop();
  node_.reset();
}

store::FaultyStore::Fault RingNode::fault_of(const store::Batch& batch) {
  using Fault = store::FaultyStore::Fault;
  const bool refused =
      std::any_of(batch.changes().begin(), batch.changes().end(),
                  [this](const auto& change) { return change.key == refused_key_; });
  if (full_ || (refused_key_ != 0 && refused)) return Fault::kBefore;
  if (failed_at_ != world_.now()) failed_.clear();
  failed_at_ = world_.now();
  if (const auto again = failed_.extract(&batch); !again.empty()) return again.mapped();
  Fault fault = script_.happens(&Faults::store_mute) ? Fault::kAfter : Fault::kNone;
  if (script_.happens(&Faults::store_refuses)) fault = Fault::kBefore;
  if (fault != Fault::kNone) failed_.emplace(&batch, fault);
  return fault;
}

// ---- life ----

NodeSeams RingNode::seams() {
  const auto post = [this, life = life_](std::function<void()> work) {
    world_.after({}, [this, life, work = std::move(work)] {
      if (life == life_) work();
    });
  };
  NodeSeams seams{world_,
                  *writes_,
                  [this](engine::EngineSpec spec, engine::EngineListener& listener) {
                    return make_engine(std::move(spec), listener);
                  },
                  [this](const state::PoolSizes& sizes) { return make_pools(sizes); },
                  [this](const engine::EngineSpec& spec) { return engines_.count(spec.id) != 0; },
                  [this] { return "token" + std::to_string(++tokens_); },
                  [this, life = life_](TimePoint when) {
                    world_.cancel(alarm_);
                    alarm_ = world_.at(when, [this, life] {
                      if (life == life_) node_->tick();
                    });
                  }};
  seams.end_stray_engines = [this](const std::set<EngineId>& known) {
    for (const auto& [id, engine] : engines_)
      if (known.count(id) == 0) engine->die();
    std::erase_if(engines_, [&](const auto& entry) { return known.count(entry.first) == 0; });
  };
  seams.post = post;
  seams.open_blobs = [this, post](const std::string&) {
    return Result<std::unique_ptr<store::BlobStore>>(store::make_memory_blob_store(blobs_, post));
  };
  return seams;
}

void RingNode::start() {
  if (node_) return;
  if (const Status status = try_start(); !status.ok()) fail_start(status);
}

Status RingNode::try_start() {
  ++life_;
  world_.note("starts", life_);
  writes_ = std::make_unique<store::WriteQueue>(
      cut_,
      [this, life = life_](std::function<void()> callback) {
        world_.after(world_.random.up_to(kMillisecond),
                     [this, life, callback = std::move(callback)] {
                       if (life == life_) callback();
                     });
      },
      [this] { write_later(); });
  PLEXRL_ASSIGN(node_, NodeRuntime::create(config_, {"n1", folder_, folder_, "boot-1"}, seams()));
  node_->set_connection_hooks([] { return std::set<TenantId>{}; },
                              [this](TenantId tenant) { on_closed(tenant); });
  return node_->start([this, life = life_](const Status& status) {
    // From inside the node: it is ended by the next event.
    if (status.ok()) {
      ready_ = true;
      return;
    }
    world_.after({}, [this, life, status] {
      if (life == life_) fail_start(status);
    });
  });
}

void RingNode::fail_start(const Status& why) {
  PLEXRL_LOG(kDebug, "plexrld does not start: %s", why.to_string().c_str());
  end();
}

void RingNode::write_later() {
  world_.after(world_.random.up_to(kSlowDisk), [this, life = life_] {
    if (life == life_ && writes_) (void)writes_->write_group();
  });
}

// Whatever is left of this plexrld goes: its queue, its connections, its callbacks.
void RingNode::end() {
  ++life_;
  world_.cancel(alarm_);
  if (writes_) writes_->drop();
  ready_ = stopping_ = false;
  node_.reset();
  writes_.reset();
  ledger_.plexrld_ended();
  on_down();
}

void RingNode::kill() {
  if (!node_) return;
  world_.note("killed", life_);
  cut_.left = world_.random.below(8);
  (void)writes_->write_group();
  writes_->drop();
  cut_.left.reset();
  end();
}

void RingNode::stop() {
  if (!node_ || stopping_) return;
  world_.note("stopped", life_);
  stopping_ = true;
  stop_by_ = world_.now() + kDrainTime;
  drain();
}

void RingNode::drain() {
  if (!ready_ || node_->drain() || world_.now() >= stop_by_) {
    node_->detach();
    while (writes_->write_group()) continue;
    return end();
  }
  world_.after(kDrainPoll, [this, life = life_] {
    if (life == life_) drain();
  });
}

void RingNode::lose_engines() {
  for (const auto& [id, engine] : engines_) engine->die();
}

// ---- seams ----

Result<Pools> RingNode::make_pools(const state::PoolSizes& sizes) {
  ++pools_made_;
  Pools pools;
  pools.sizes = sizes;
  PLEXRL_ASSIGN(pools.device,
                device::create_cpu_pool("device", sizes.chunk_bytes, sizes.device_chunks));
  PLEXRL_ASSIGN(pools.host, device::create_cpu_pool("host", sizes.chunk_bytes, sizes.host_chunks));
  return pools;
}

std::unique_ptr<engine::Engine> RingNode::make_engine(engine::EngineSpec spec,
                                                      engine::EngineListener& listener) {
  auto& kept = engines_[spec.id];
  // One that was stopped: its number may come again for another model.
  if (!kept || kept->stopped()) {
    kept = std::make_shared<RingEngine>(
        RingEngine::Parts{
            world_, script_, broken_, ledger_,
            [this](const std::vector<std::uint32_t>& chunks) { return committed(chunks); }},
        std::move(spec), fake_options_);
  }
  return std::make_unique<RingEngineHandle>(kept, listener);
}

bool RingNode::committed(const std::vector<std::uint32_t>& chunks) const {
  bool found = false;
  (void)memory_->scan(
      state::kManifestTable, [&](std::uint64_t, std::uint64_t, std::string_view row) {
        const auto manifest = state::decode_manifest(row, kHostChunks);
        if (!manifest)
          return broken_.add("a manifest cannot be read: %s", manifest.error().to_string().c_str());
        for (const auto& entry : manifest->entries)
          for (const std::uint32_t chunk : entry.host)
            found = found ||
                    (!entry.blob && std::find(chunks.begin(), chunks.end(), chunk) != chunks.end());
      });
  return found;
}

std::uint64_t RingNode::deaths(EngineId engine) const {
  const auto found = engines_.find(engine);
  return found == engines_.end() ? 0 : found->second->deaths();
}

}  // namespace plexrl::runtime
