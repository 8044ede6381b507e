// SPDX-License-Identifier: Apache-2.0
// AtenDecoder: TokenDecoder in plain ATen operators, on the device of a model. Attention is one
// small batch of products per row: correct, not fast.
#pragma once

#include <memory>

#include "engine_torch/model_state.h"
#include "engine_torch/token_decoder.h"

namespace plexrl::model {

// Over the weights of a version that was checked (0: the base without adapter). Views only: the
// memory of `state` must be mapped while the decoder is used. Positions up to `positions` may
// occur.
[[nodiscard]] std::unique_ptr<TokenDecoder> make_aten_decoder(const ModelState& state,
                                                              std::uint64_t version,
                                                              std::int64_t positions);

}  // namespace plexrl::model
