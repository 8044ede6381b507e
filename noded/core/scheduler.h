// SPDX-License-Identifier: Apache-2.0
// Scheduler: decides which op runs and which models are resident on one device group.
//
// Pure: the same events at the same times give the same actions, in plexrld and in `plexrl sim`.
// What runs on a device group is one op, or a batch: generate ops of models with the same base, one
// of each model. A model is resident when it and its base are; capacity is never exceeded, counting
// resident models, models that are being moved either way, and the KV of started ops. The caller
// carries the actions out and reports each one's outcome as an event; it may not invent outcomes.
// Not thread safe; owned by the loop thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/types.h"

namespace plexrl::core {

struct SchedulerConfig {
  std::uint64_t device_capacity_bytes =
      0;                             // for models and KV; activation memory is already taken off
  std::string_view policy = "fifo";  // "fifo", "round-robin", "hrrs", "least-slowdown"
  Duration quantum{500 *
                   kMillisecond.ns};  // a running op is asked to yield after this while others wait
};

class Scheduler {
 public:
  static constexpr std::size_t kMaxBatch = 32;  // ops

  // INVALID_ARGUMENT for an unknown policy, no capacity or no quantum.
  [[nodiscard]] static Result<std::unique_ptr<Scheduler>> create(const SchedulerConfig& config);
  // Continues exactly where `snapshot` was taken. CORRUPT when it is damaged or contradicts itself,
  // INVALID_ARGUMENT when it was taken under another policy.
  [[nodiscard]] static Result<std::unique_ptr<Scheduler>> restore(const SchedulerConfig& config,
                                                                  std::string_view snapshot);
  virtual ~Scheduler() = default;

  // Aborts on an event that contradicts what it was told before (a broken invariant of the caller).
  [[nodiscard]] virtual Actions step(const Event& event, TimePoint now) = 0;

  // Whether a model or op of this size could ever run beside `base` (none: without a base);
  // NO_CAPACITY says by how much it is too large. For an op pass the model's bytes plus its own.
  // Ask before an op arrives: one that is too large is never started and why() says kMemory.
  [[nodiscard]] virtual Status admissible(std::uint64_t device_bytes, ModelId base) const = 0;
  [[nodiscard]] virtual WaitReason why(OpId op) const = 0;
  // None for a tenant without models. `now` is not before the last step's.
  [[nodiscard]] virtual std::optional<TenantView> tenant(TenantId tenant, TimePoint now) const = 0;
  // Models with ops that wait, at most kMaxExpected, each once: the next one first, then by the age
  // of their oldest op; then parked models by when they are expected to be used. What to have in
  // host memory.
  static constexpr std::size_t kMaxExpected = 16;
  [[nodiscard]] virtual std::vector<ModelId> waiting_models() const = 0;
  // Deterministic snapshot for the journal; `restore` of it continues identically.
  [[nodiscard]] virtual std::string snapshot() const = 0;
};

}  // namespace plexrl::core
