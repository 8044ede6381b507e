// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/training_batch.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace plexrl::model {
namespace {

// A micro-batch has at most this many packed tokens (one datum is always allowed): enough for BLAS,
// few enough for the caches of small models and the activation memory of large ones.
constexpr std::int64_t kMicroTokens = 1024;
constexpr std::int64_t kMinMicroTokens = 64;
constexpr std::int64_t kMicroBytes = 512LL << 20;

struct Group {
  std::size_t first = 0, end = 0;  // of the order
  std::int64_t prefix = 0;
  std::int64_t length = 0;  // of the longest datum, prefix apart
};
using Order = std::vector<std::size_t>;

// Rough bytes that autograd keeps per token, attention apart.
std::int64_t micro_tokens(const ModelConfig& c) {
  const std::int64_t per_token =
      c.layers * (10 * c.hidden_size + 4 * c.query_size() + 4 * c.intermediate_size) * 4;
  return std::clamp(kMicroBytes / per_token, kMinMicroTokens, kMicroTokens);
}

std::int64_t size_of(const Datum& datum) { return static_cast<std::int64_t>(datum.tokens.size()); }

std::int64_t common_prefix(const Datum& a, const Datum& b) {
  const auto ends =
      std::mismatch(a.tokens.begin(), a.tokens.end(), b.tokens.begin(), b.tokens.end());
  return ends.first - a.tokens.begin();
}

// Within what begins alike, in the order of the tokens: the longer a prefix two data share, the
// nearer they are.
Order similar_together(const std::vector<Datum>& data) {
  std::map<std::vector<std::int32_t>, std::size_t> first_with;  // beginning -> datum
  std::vector<std::size_t> place(data.size());
  for (std::size_t d = 0; d < data.size(); ++d) {
    const std::vector<std::int32_t>& tokens = data[d].tokens;
    place[d] = d;
    if (size_of(data[d]) <= kMinSharedPrefix) continue;
    place[d] = first_with.emplace(std::vector(tokens.begin(), tokens.begin() + kMinSharedPrefix), d)
                   .first->second;
  }
  Order order(data.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return place[a] != place[b] ? place[a] < place[b] : data[a].tokens < data[b].tokens;
  });
  return order;
}

// By dynamic programming from the end: saved[i] is what the best cut from there on saves. Each row
// keeps a token of its own.
std::vector<Group> find_groups(const std::vector<Datum>& data, const Order& order,
                               std::int64_t most) {
  const std::size_t count = order.size();
  std::vector<std::int64_t> common(count, 0);  // with the one before
  for (std::size_t i = 1; i < count; ++i)
    common[i] = common_prefix(data[order[i - 1]], data[order[i]]);
  std::vector<std::int64_t> saved(count + 1, 0);
  std::vector<Group> best(count);
  for (std::size_t i = count; i-- > 0;) {
    std::int64_t longest = size_of(data[order[i]]);
    std::int64_t prefix = longest - 1;
    best[i] = {i, i + 1, 0, longest};
    saved[i] = saved[i + 1];
    for (std::size_t j = i + 1; j < count; ++j) {
      const Datum& datum = data[order[j]];
      prefix = std::min({prefix, common[j], size_of(datum) - 1});
      longest = std::max(longest, size_of(datum));
      const auto rows = static_cast<std::int64_t>(j + 1 - i);
      // A shorter prefix with more rows fits even less.
      if (prefix < kMinSharedPrefix || prefix + rows * (longest - prefix) > most) break;
      const std::int64_t now = saved[j + 1] + (rows - 1) * prefix;
      if (now <= saved[i]) continue;
      saved[i] = now;
      best[i] = {i, j + 1, prefix, longest - prefix};
    }
  }
  std::vector<Group> groups;
  for (std::size_t i = 0; i < count; i = best[i].end) groups.push_back(best[i]);
  return groups;
}

// Groups of equal prefix go together as long as they fit. Rows without one are one group.
bool add(const Group& group, const Order& order, std::int64_t most, MicroBatch* batch) {
  PackedShape shape = batch->shape;
  if (shape.prefix != group.prefix) return false;
  const auto rows = static_cast<std::int64_t>(group.end - group.first);
  if (shape.prefix == 0 && !shape.group_sizes.empty())
    shape.group_sizes.back() += rows;
  else
    shape.group_sizes.push_back(rows);
  shape.length = std::max(shape.length, group.length);
  if (shape.tokens() > most && !batch->rows.empty()) return false;
  batch->shape = std::move(shape);
  for (std::size_t i = group.first; i < group.end; ++i) batch->rows.push_back(order[i]);
  return true;
}

}  // namespace

std::int64_t PackedShape::rows() const noexcept {
  return std::accumulate(group_sizes.begin(), group_sizes.end(), std::int64_t{0});
}

std::int64_t PackedShape::prefix_tokens() const noexcept {
  return prefix * static_cast<std::int64_t>(group_sizes.size());
}

std::int64_t PackedShape::tokens() const noexcept { return prefix_tokens() + rows() * length; }

std::vector<MicroBatch> split_micro_batches(const ModelConfig& config,
                                            const std::vector<Datum>& data) {
  const std::int64_t most = micro_tokens(config);
  const Order order = similar_together(data);
  std::vector<MicroBatch> batches;
  for (const Group& group : find_groups(data, order, most)) {
    if (!batches.empty() && add(group, order, most, &batches.back())) continue;
    batches.push_back({{}, {group.prefix, 0, {}}});
    (void)add(group, order, most, &batches.back());
  }
  return batches;
}

std::vector<std::int64_t> packed_tokens(const MicroBatch& batch, const std::vector<Datum>& data) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(batch.shape.tokens()), 0);
  for (const PackedPosition& at : packed_positions(batch, data))
    ids[static_cast<std::size_t>(at.token)] = data[batch.rows[at.first_row]].tokens[at.index];
  return ids;
}

std::vector<PackedPosition> packed_positions(const MicroBatch& batch,
                                             const std::vector<Datum>& data) {
  std::vector<PackedPosition> positions;
  const auto prefix = static_cast<std::size_t>(batch.shape.prefix);
  std::int64_t token = 0;
  std::size_t first = 0;
  for (const std::int64_t size : batch.shape.group_sizes) {
    const auto rows = static_cast<std::size_t>(size);
    for (std::size_t i = 0; i < prefix; ++i) positions.push_back({token++, first, rows, i});
    first += rows;
  }
  for (std::size_t row = 0; row < batch.rows.size(); ++row, token += batch.shape.length)
    for (std::size_t i = prefix; i < data[batch.rows[row]].tokens.size(); ++i)
      positions.push_back({token + static_cast<std::int64_t>(i - prefix), row, 1, i});
  return positions;
}

}  // namespace plexrl::model
