// SPDX-License-Identifier: Apache-2.0
// AtenDecoder: TokenDecoder in plain ATen operators, on the device of a model. Attention is one
// small batch of products per row: correct, not fast.
#pragma once

#include <memory>

#include "engine_torch/model_state.h"
#include "engine_torch/token_decoder.h"

namespace plexrl::model {

// Over the full weights that rows of the model read (see make_decoder).
[[nodiscard]] std::unique_ptr<TokenDecoder> make_aten_decoder(const ModelState& state);

}  // namespace plexrl::model
