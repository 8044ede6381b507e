// SPDX-License-Identifier: Apache-2.0
// How the data of a forward_backward are cut into micro-batches. Data that begin with the same
// tokens, such as the answers to one prompt, form a group whose common beginning is computed once;
// a position there is scored for each of them. Pure, and a function of the op's own input and the
// model's shape only, so the order of every addition is too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine_torch/model_config.h"

namespace plexrl::model {

struct Datum {
  std::vector<std::int32_t> tokens, targets;
  std::vector<float> weights;  // or advantages
  std::vector<float> sampler;  // q; empty for cross_entropy
};

// The tokens of one forward pass: for each group the `prefix` tokens that its rows begin with, then
// for each row, in order of the groups, `length` tokens that follow them.
struct PackedShape {
  std::int64_t prefix = 0;                // without sharing: 0, and one group
  std::int64_t length = 0;                // of the longest row; shorter ones are padded at the end
  std::vector<std::int64_t> group_sizes;  // rows, at least one each

  [[nodiscard]] std::int64_t rows() const noexcept;
  // In front of the rows' own.
  [[nodiscard]] std::int64_t prefix_tokens() const noexcept;
  [[nodiscard]] std::int64_t tokens() const noexcept;
};

struct MicroBatch {
  std::vector<std::size_t> rows;  // data
  PackedShape shape;
};

// One packed token that is not padding, and the rows that it is scored for.
struct PackedPosition {
  std::int64_t token = 0;
  std::size_t first_row = 0, row_count = 1;
  std::size_t index = 0;  // in the datum of each
};

// Prefixes shorter than this are not worth a group.
inline constexpr std::int64_t kMinSharedPrefix = 8;

// Data whose first kMinSharedPrefix tokens agree come together, where the first of them was; others
// stay in their order. Of that order, groups are cut so that sharing saves as much as it can.
[[nodiscard]] std::vector<MicroBatch> split_micro_batches(const ModelConfig& config,
                                                          const std::vector<Datum>& data);

// [shape.tokens()]; 0 where padded.
[[nodiscard]] std::vector<std::int64_t> packed_tokens(const MicroBatch& batch,
                                                      const std::vector<Datum>& data);

// In the tokens' order.
[[nodiscard]] std::vector<PackedPosition> packed_positions(const MicroBatch& batch,
                                                           const std::vector<Datum>& data);

}  // namespace plexrl::model
