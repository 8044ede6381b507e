// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/token_decoder.h"

#include "engine_torch/aten_decoder.h"
#include "engine_torch/decoder.h"

namespace plexrl::model {

std::unique_ptr<TokenDecoder> make_decoder(const ModelState& state) {
  if (state.device.math == ModelDevice::Math::kAten) return make_aten_decoder(state);
  const bool full = state.layout->mode == wire::TrainMode::Full;
  const ModelMemory& memory = state.memory;
  return std::make_unique<Decoder>(
      state.layout->config,
      bind_full(*state.layout, full ? memory.sampler.data() : memory.base.data(),
                full ? std::span<const Bf16>(memory.sampler16).data() : memory.base16.data()));
}

std::unique_ptr<const RowAdapter> bind_version(const TokenDecoder& decoder, const ModelState& state,
                                               std::uint64_t version) {
  if (version == 0 || state.layout->mode != wire::TrainMode::Lora) return nullptr;
  return decoder.bind_adapter(state);
}

}  // namespace plexrl::model
