// SPDX-License-Identifier: Apache-2.0
// The tensors of a Tinker datum, from protobuf or JSON, and a datum of the engine made of them.
// Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "http/body_fields.h"
#include "ops_generated.h"

namespace plexrl::http {

struct TinkerTensor {
  bool whole = false;               // int64; else float32
  std::vector<std::int64_t> ints;   // when `whole`
  std::vector<float> floats;        // else
  std::vector<std::int64_t> shape;  // empty: not said
  bool sparse = false;              // CSR; `shape` is that of the dense tensor
  std::vector<std::int64_t> rows;   // crow_indices
  std::vector<std::int64_t> columns;
};

// Of protobuf's message Tensor, or of the JSON object TensorData.
[[nodiscard]] Result<TinkerTensor> read_tensor(std::string_view message);
[[nodiscard]] Result<TinkerTensor> read_tensor(const Json& value);

struct TinkerDatum {
  std::vector<std::int32_t> tokens;            // of model_input
  std::map<std::string, TinkerTensor> inputs;  // loss_fn_inputs
};
[[nodiscard]] Result<TinkerDatum> read_datum(std::string_view message);
[[nodiscard]] Result<TinkerDatum> read_datum(const Json& value);
// The tokens of a ModelInput's chunks. UNSUPPORTED: there is something else than text.
[[nodiscard]] Result<std::vector<std::int32_t>> read_chunks(const Json& model_input);

// What the loss needs has to be there and nothing else; weights are 1 unless given. Lengths,
// ranges and finite numbers are checked where the op is.
[[nodiscard]] Result<std::unique_ptr<wire::DatumT>> make_datum(wire::LossKind loss,
                                                               TinkerDatum datum);

}  // namespace plexrl::http
