// SPDX-License-Identifier: Apache-2.0
// RingNode: a NodeRuntime in the virtual world with its engines, store and disks, and what happens
// to plexrld as a whole: it is killed (of what waits for the disk a prefix arrives), stopped and
// started, with or without its engines.
#pragma once

#include <set>

#include "fakes/faulty_store.h"
#include "ring_engine.h"
#include "runtime/node_runtime.h"
#include "store/memory_blob_store.h"
#include "store/write_queue.h"

namespace plexrl::runtime {

// Lets so many batches through and refuses the rest: where a kill cuts what was on its way.
class CutStore final : public store::StateStore {
 public:
  explicit CutStore(StateStore& below) : below_(below) {}
  std::optional<std::size_t> left;

  Status apply(std::span<const store::BatchPtr> batches) override {
    if (!left) return below_.apply(batches);
    const std::size_t count = std::min(*left, batches.size());
    *left -= count;
    if (count > 0) PLEXRL_TRY(below_.apply(batches.first(count)));
    return count == batches.size() ? Status() : error(Code::IO, "killed");
  }
  Result<std::string> get(std::string_view table, std::uint64_t key,
                          std::uint64_t subkey) const override {
    return below_.get(table, key, subkey);
  }
  Status scan(std::string_view table, const Visitor& visit) const override {
    return below_.scan(table, visit);
  }

 private:
  StateStore& below_;
};

class RingNode {
 public:
  RingNode(VirtualWorld& world, RingScript& script, Broken& broken, std::string folder);
  ~RingNode();

  // ready() follows, or on_down.
  void start();
  void kill();
  void stop();  // drains first; down() is true when it has ended
  void lose_engines();
  [[nodiscard]] bool ready() const { return ready_; }
  [[nodiscard]] bool down() const { return node_ == nullptr; }
  [[nodiscard]] bool draining() const { return stopping_; }
  [[nodiscard]] NodeRuntime& runtime() { return *node_; }
  [[nodiscard]] store::StateStore& disk() { return *memory_; }
  [[nodiscard]] store::MemoryDisk& blobs() { return *blobs_; }
  [[nodiscard]] store::WriteQueue& writes() { return *writes_; }
  [[nodiscard]] DeviceLedger& ledger() { return ledger_; }
  [[nodiscard]] const config::SiteConfig& config() const { return config_; }
  [[nodiscard]] const engine::FakeEngineOptions& fake_options() const { return fake_options_; }
  [[nodiscard]] std::uint64_t deaths(EngineId engine) const;
  // How often host memory began anew, and with it every state in it.
  [[nodiscard]] std::uint64_t pools_made() const { return pools_made_; }
  void store_full(bool full) { full_ = full; }
  // Batches with a row of this key; 0: none.
  void store_refuses(std::uint64_t key) { refused_key_ = key; }
  std::function<void()> on_down = [] {};                      // connections have ended
  std::function<void(TenantId)> on_closed = [](TenantId) {};  // those of a job

 private:
  [[nodiscard]] NodeSeams seams();
  [[nodiscard]] Status try_start();
  void fail_start(const Status& why);
  void end();
  void drain();
  void write_later();
  [[nodiscard]] store::FaultyStore::Fault fault_of(const store::Batch& batch);
  [[nodiscard]] Result<Pools> make_pools(const state::PoolSizes& sizes);
  [[nodiscard]] std::unique_ptr<engine::Engine> make_engine(engine::EngineSpec spec,
                                                            engine::EngineListener& listener);
  [[nodiscard]] bool committed(const std::vector<std::uint32_t>& chunks) const;

  VirtualWorld& world_;
  RingScript& script_;
  Broken& broken_;
  const std::string folder_;
  config::SiteConfig config_;
  engine::FakeEngineOptions fake_options_;
  DeviceLedger ledger_;
  std::unique_ptr<store::StateStore> memory_ = store::make_memory_store();
  store::FaultyStore faulty_{*memory_};
  CutStore cut_{faulty_};
  std::shared_ptr<store::MemoryDisk> blobs_ = std::make_shared<store::MemoryDisk>();
  std::map<EngineId, std::shared_ptr<RingEngine>> engines_;
  std::unique_ptr<store::WriteQueue> writes_;
  std::unique_ptr<NodeRuntime> node_;
  VirtualWorld::EventId alarm_{};
  bool ready_ = false;
  bool stopping_ = false;
  TimePoint stop_by_;
  bool full_ = false;
  std::uint64_t refused_key_ = 0;
  // A batch that failed within its group fails by itself, too.
  std::map<const store::Batch*, store::FaultyStore::Fault> failed_;
  TimePoint failed_at_;
  std::uint64_t life_ = 0;  // of plexrld
  std::uint64_t pools_made_ = 0;
  int tokens_ = 0;
};

}  // namespace plexrl::runtime
