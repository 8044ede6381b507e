// SPDX-License-Identifier: Apache-2.0
// HeldModel: one model as the engine holds it: address space of its segments, what is mapped there,
// and its training position. Reservations live until the model is forgotten, so the addresses in
// `state` and in yielded ops stay valid over suspend and resume.
//
// Threads: the protocol thread owns everything; it lends `segments`, `kv` and `state` to the memory
// thread while the model is kMoving (while it is `filling`, the late segments), and `kv` and
// `state` to the compute thread while `running_op` is set. The set of segments does not change
// after the first resume has begun.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/clock.h"
#include "device/device_backend.h"
#include "engine_generated.h"
#include "engine_torch/model_state.h"
#include "engine_torch/op_run.h"

namespace plexrl::worker {

// kPoisoned: memory could neither be used nor be given back; only Forget is accepted.
enum class Residency : std::uint8_t { kParked, kMoving, kResident, kPoisoned };

struct HeldSegment {
  std::unique_ptr<device::Reservation> place;
  std::vector<device::ChunkIndex> device;  // while mapped

  [[nodiscard]] std::span<float> floats() const noexcept {
    return {reinterpret_cast<float*>(place->data()), place->bytes() / sizeof(float)};
  }
  // The first `elements` of a segment of bfloat16 numbers; its bytes are rounded up.
  [[nodiscard]] std::span<model::Bf16> halves(std::uint64_t elements) const noexcept {
    return {reinterpret_cast<model::Bf16*>(place->data()), elements};
  }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept {
    return {place->data(), place->bytes()};
  }
};

// As of the last finished op; what replies and commits report.
struct TrainPosition {
  std::uint64_t step = 0;
  std::uint64_t version = 0;
  bool gradients_pending = false;
  std::uint64_t applied_seq = 0;    // last training op that finished
  std::uint64_t committed_seq = 0;  // the last one that changed segments which commits copy
  std::uint64_t started_seq = 0;    // the highest that was ever begun
};

struct HeldModel {
  std::uint64_t id = 0;
  wire::TrainMode mode = wire::TrainMode::None;
  std::uint32_t lora_rank = 0;
  std::uint64_t seed = 0;
  std::shared_ptr<const model::ModelLayout> layout;

  std::map<wire::SegmentKind, HeldSegment> segments;  // without kv
  std::optional<HeldSegment> kv;                      // of kv_op, from its start to its end
  std::uint64_t kv_op = 0;
  model::ModelState state;
  TrainPosition position;

  Residency residency = Residency::kParked;
  std::uint64_t running_op = 0;
  unsigned commits = 0;  // copies under way
  // Moments, and sampler weights that hold nothing, are still being filled by the memory thread:
  // ops that need them wait.
  bool filling = false;
  TimePoint filled;  // when that was last over
  // Committed segments that ops wrote since they were last copied out or filled.
  std::set<wire::SegmentKind> written;
  // Dropped ops that must undo what they did as soon as the model is resident.
  std::vector<std::unique_ptr<model::OpRun>> abandoned;

  [[nodiscard]] bool is_base() const noexcept { return id == 0; }
  [[nodiscard]] HeldSegment* find(wire::SegmentKind kind) noexcept {
    if (kind == wire::SegmentKind::Kv) return kv ? &*kv : nullptr;
    const auto found = segments.find(kind);
    return found == segments.end() ? nullptr : &found->second;
  }
};

}  // namespace plexrl::worker
