// SPDX-License-Identifier: Apache-2.0
// Scratch: float memory of our kernels, owned, from the installed activation arena. Contents are
// undefined at first.
#pragma once

#include <cstdint>
#include <utility>

#include "engine_torch/activation_arena.h"

namespace plexrl::model {

class Scratch {
 public:
  Scratch() noexcept = default;
  [[nodiscard]] static Result<Scratch> make(std::int64_t floats) {
    ActivationArena* arena = ActivationArena::installed();
    PLEXRL_CHECK(arena != nullptr, "the activation arena is not installed");
    const std::size_t bytes = static_cast<std::size_t>(floats) * sizeof(float);
    void* memory = arena->allocate(bytes);
    if (memory == nullptr)
      return error(Code::NO_CAPACITY,
                   "activation arena: %zu more bytes needed, %zu of %zu in use: send a smaller op",
                   bytes, arena->stats().used_bytes, arena->stats().capacity_bytes);
    return Scratch(static_cast<float*>(memory));
  }
  Scratch(Scratch&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)) {}
  Scratch& operator=(Scratch&& other) noexcept {
    std::swap(memory_, other.memory_);
    return *this;
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    if (memory_ != nullptr) ActivationArena::installed()->release(memory_);
  }

  [[nodiscard]] float* data() const noexcept { return memory_; }

 private:
  explicit Scratch(float* memory) noexcept : memory_(memory) {}
  float* memory_ = nullptr;
};

}  // namespace plexrl::model
