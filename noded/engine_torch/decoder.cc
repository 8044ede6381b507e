// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/decoder.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numbers>
#include <utility>

#include "engine_torch/row_gemm.h"

namespace plexrl::model {
namespace {

constexpr int kTargets = 7;
constexpr std::int64_t kPad = 16;  // floats of a cache line
enum Target : int { kQ, kK, kV, kO, kGate, kUp, kDown };

std::uint64_t vector_elements(const ArenaLayout& layout) {
  std::uint64_t total = 0;
  for (const TensorSlot& slot : layout.slots)
    if (slot.vector) total += slot.elements();
  return total;
}

// Reads the slots in the order in which the layout wrote them. `widened` takes the vectors of a
// bfloat16 arena.
class SlotCursor {
 public:
  SlotCursor(const ArenaLayout& layout, const float* arena, const Bf16* half_arena, float* widened)
      : layout_(layout), arena_(arena), half_arena_(half_arena), widened_(widened) {}

  WeightMatrix matrix() {
    const TensorSlot& slot = layout_.slots.at(at_++);
    if (arena_ != nullptr) return {arena_ + slot.offset, nullptr};
    return {nullptr, half_arena_ + slot.offset};
  }
  const float* vector() {
    const TensorSlot& slot = layout_.slots.at(at_++);
    if (arena_ != nullptr) return arena_ + slot.offset;
    widen_bf16(half_arena_ + slot.offset, widened_, slot.cols);
    return std::exchange(widened_, widened_ + slot.cols);
  }

 private:
  const ArenaLayout& layout_;
  const float* arena_;
  const Bf16* half_arena_;
  float* widened_;
  std::size_t at_ = 0;
};

}  // namespace

FullWeights bind_full(const ModelLayout& layout, const float* arena, const Bf16* half_arena) {
  FullWeights w;
  if (half_arena != nullptr) w.widened = std::make_unique<float[]>(vector_elements(layout.full));
  SlotCursor cursor(layout.full, arena, half_arena, w.widened.get());
  w.embedding = cursor.matrix();
  for (std::int64_t i = 0; i < layout.config.layers; ++i) {
    LayerWeights layer{};
    const auto matrices = [&](std::initializer_list<WeightMatrix*> fields) {
      for (WeightMatrix* field : fields) *field = cursor.matrix();
    };
    const auto vectors = [&](std::initializer_list<const float**> fields) {
      for (const float** field : fields) *field = cursor.vector();
    };
    vectors({&layer.input_norm});
    matrices({&layer.q, &layer.k, &layer.v});
    if (layout.config.qkv_bias) vectors({&layer.q_bias, &layer.k_bias, &layer.v_bias});
    if (layout.config.head_norms) vectors({&layer.q_norm, &layer.k_norm});
    matrices({&layer.o});
    vectors({&layer.post_norm});
    matrices({&layer.gate, &layer.up, &layer.down});
    w.layers.push_back(layer);
  }
  w.final_norm = cursor.vector();
  w.head = layout.config.tied_head ? w.embedding : cursor.matrix();
  return w;
}

KernelAdapter::KernelAdapter(const ModelLayout& layout, const float* arena) {
  const std::vector<TensorSlot>& slots = layout.trainable.slots;
  std::uint64_t elements = 0;
  for (std::size_t i = 1; i < slots.size(); i += 2) elements += slots[i].elements();
  transposed_.resize(elements);
  float* to = transposed_.data();
  for (std::size_t i = 0; i + 1 < slots.size(); i += 2) {
    const std::int64_t rank = slots[i].rows;
    const std::int64_t out = slots[i + 1].rows;
    const float* const b = arena + slots[i + 1].offset;
    for (std::int64_t row = 0; row < out; ++row)
      for (std::int64_t r = 0; r < rank; ++r) to[r * out + row] = b[row * rank + r];
    matrices_.push_back({arena + slots[i].offset, to, rank, layout.lora_scale()});
    to += rank * out;
  }
}

namespace {

// Of Llama 3.1: long waves are stretched, short ones are not.
double scaled(const RopeScaling& scaling, double frequency) {
  if (scaling.kind == RopeScaling::Kind::kNone) return frequency;
  const double stretched = frequency / scaling.factor;
  if (scaling.kind == RopeScaling::Kind::kLinear) return stretched;
  const double waves = static_cast<double>(scaling.original_positions) * frequency /
                       (2.0 * std::numbers::pi);  // in the original context
  const double kept =
      (waves - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return std::lerp(stretched, frequency, std::clamp(kept, 0.0, 1.0));
}

}  // namespace

void rope_tables(const ModelConfig& config, std::int64_t positions, std::vector<float>* cosine,
                 std::vector<float>* sine) {
  const std::int64_t half = config.head_dim / 2;
  cosine->resize(static_cast<std::size_t>(positions * half));
  sine->resize(cosine->size());
  for (std::int64_t i = 0; i < half; ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(config.head_dim);
    const auto frequency = static_cast<float>(
        scaled(config.rope_scaling, 1.0 / std::pow(config.rope_theta, exponent)));
    for (std::int64_t p = 0; p < positions; ++p) {
      const auto angle = static_cast<double>(static_cast<float>(p) * frequency);
      (*cosine)[static_cast<std::size_t>(p * half + i)] = static_cast<float>(std::cos(angle));
      (*sine)[static_cast<std::size_t>(p * half + i)] = static_cast<float>(std::sin(angle));
    }
  }
}

Decoder::Decoder(const ModelConfig& config, FullWeights weights)
    : config_(config), weights_(std::move(weights)) {}

std::unique_ptr<const RowAdapter> Decoder::bind_adapter(const ModelState& state) const {
  return std::make_unique<KernelAdapter>(*state.layout, state.memory.sampler.data());
}

void Decoder::reach(std::int64_t positions) {
  if (positions <= positions_) return;
  positions_ = positions;
  rope_tables(config_, positions, &cosine_, &sine_);
}

// Sizes the working memory; with `out` (whose x is the start) also places the buffers.
std::int64_t Decoder::scratch_floats(Buffers* out) const {
  const ModelConfig& c = config_;
  const std::int64_t threads = omp_get_max_threads();
  struct Part {
    float* Buffers::*field;
    std::int64_t floats;
  };
  const Part parts[] = {{&Buffers::x, kChunk * c.hidden_size},
                        {&Buffers::normed, kChunk * std::max(c.hidden_size, c.query_size())},
                        {&Buffers::q, kChunk * c.query_size()},
                        {&Buffers::k, kChunk * c.kv_size()},
                        {&Buffers::v, kChunk * c.kv_size()},
                        {&Buffers::attended, kChunk * std::max(c.hidden_size, c.query_size())},
                        {&Buffers::gate, kChunk * c.intermediate_size},
                        {&Buffers::up, kChunk * c.intermediate_size},
                        {&Buffers::z, kChunk * std::int64_t{kMaxLoraRank}},
                        {&Buffers::scores, threads * positions_},
                        {&Buffers::rounded, rounded_floats()}};
  std::int64_t total = 0;
  float* start = scratch_.data();
  for (const Part& part : parts) {
    if (out != nullptr) out->*part.field = start + total;
    total += (part.floats + kPad - 1) / kPad * kPad;
  }
  return total;
}

std::int64_t Decoder::rounded_floats() const {
  const ModelConfig& c = config_;
  if (weights_.head.half == nullptr) return 0;
  return kChunk * std::max({c.hidden_size, c.query_size(), c.intermediate_size}) / 2;
}

Status Decoder::acquire() {
  PLEXRL_ASSIGN(scratch_, Scratch::make(scratch_floats(nullptr)));
  (void)scratch_floats(&buffers_);
  return {};
}

void Decoder::multiply(const WeightMatrix& weight, const float* x, float* y, std::int64_t rows,
                       std::int64_t in, std::int64_t out) const {
  if (weight.full != nullptr) return row_gemm(x, weight.full, y, rows, in, out);
  auto* const rounded = reinterpret_cast<Bf16*>(buffers_.rounded);
  round_bf16(x, rounded, rows * in);
  row_gemm_bf16(rounded, weight.half, y, rows, in, out);
}

void Decoder::group_rows(std::span<const TokenAt> tokens) {
  groups_.clear();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const auto* const adapter = static_cast<const KernelAdapter*>(tokens[i].adapter);
    if (adapter == nullptr) continue;
    if (!groups_.empty() && groups_.back().adapter == adapter &&
        groups_.back().first + groups_.back().count == at)
      ++groups_.back().count;
    else
      groups_.push_back({adapter, at, 1});
  }
}

void Decoder::project(std::int64_t layer, int target, const WeightMatrix& weight, const float* x,
                      float* y, std::int64_t rows, std::int64_t in, std::int64_t out) {
  multiply(weight, x, y, rows, in, out);
  if (groups_.empty()) return;
  lora_.clear();
  for (const AdapterRows& group : groups_)
    lora_.push_back({&group.adapter->matrix(layer, target), group.first, group.count});
  add_lora(lora_, x, y, buffers_.z, in, out);
}

void Decoder::cache_and_attend(std::int64_t layer, std::span<const TokenAt> tokens) {
  const ModelConfig& c = config_;
  const Buffers& b = buffers_;
  const std::int64_t dim = c.head_dim;
  const auto count = static_cast<std::int64_t>(tokens.size());
  const auto keys_of = [&](const TokenAt& t) {
    return t.row.data + layer * 2 * c.kv_size() * t.row.capacity;
  };
#pragma omp parallel for schedule(static) if (count * c.query_size() > 1 << 15)
  for (std::int64_t i = 0; i < count; ++i) {
    const TokenAt& t = tokens[static_cast<std::size_t>(i)];
    const float* cosine = cosine_.data() + t.position * (dim / 2);
    const float* sine = sine_.data() + t.position * (dim / 2);
    rotate(b.q + i * c.query_size(), cosine, sine, c.heads, dim);
    rotate(b.k + i * c.kv_size(), cosine, sine, c.kv_heads, dim);
    float* keys = keys_of(t);
    float* values = keys + c.kv_size() * t.row.capacity;
    for (std::int64_t h = 0; h < c.kv_heads; ++h) {
      const std::int64_t at = (h * t.row.capacity + t.position) * dim;
      std::copy_n(b.k + i * c.kv_size() + h * dim, dim, keys + at);
      std::copy_n(b.v + i * c.kv_size() + h * dim, dim, values + at);
    }
  }
#pragma omp parallel for schedule(dynamic, 8) if (count * c.query_size() > 1 << 13)
  for (std::int64_t i = 0; i < count; ++i) {
    const TokenAt& t = tokens[static_cast<std::size_t>(i)];
    const float* keys = keys_of(t);
    attend({c.heads, c.kv_heads, dim, t.row.capacity}, b.q + i * c.query_size(), keys,
           keys + c.kv_size() * t.row.capacity, t.position + 1,
           b.scores + omp_get_thread_num() * positions_, b.attended + i * c.query_size());
  }
}

void Decoder::finish_heads(const LayerWeights& w, std::int64_t rows) {
  const ModelConfig& c = config_;
  const Buffers& b = buffers_;
  if (c.qkv_bias) {
    add_bias(b.q, w.q_bias, rows, c.query_size());
    add_bias(b.k, w.k_bias, rows, c.kv_size());
    add_bias(b.v, w.v_bias, rows, c.kv_size());
  }
  if (c.head_norms) {
    const auto eps = static_cast<float>(c.rms_norm_eps);
    rms_norm(b.q, w.q_norm, b.q, rows * c.heads, c.head_dim, eps);
    rms_norm(b.k, w.k_norm, b.k, rows * c.kv_heads, c.head_dim, eps);
  }
}

void Decoder::attention(std::int64_t layer, std::span<const TokenAt> tokens) {
  const ModelConfig& c = config_;
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  const Buffers& b = buffers_;
  const auto rows = static_cast<std::int64_t>(tokens.size());
  rms_norm(b.x, w.input_norm, b.normed, rows, c.hidden_size, static_cast<float>(c.rms_norm_eps));
  project(layer, kQ, w.q, b.normed, b.q, rows, c.hidden_size, c.query_size());
  project(layer, kK, w.k, b.normed, b.k, rows, c.hidden_size, c.kv_size());
  project(layer, kV, w.v, b.normed, b.v, rows, c.hidden_size, c.kv_size());
  finish_heads(w, rows);
  cache_and_attend(layer, tokens);
  project(layer, kO, w.o, b.attended, b.normed, rows, c.query_size(), c.hidden_size);
  add_to(b.x, b.normed, rows * c.hidden_size);
}

void Decoder::feed_forward(std::int64_t layer, std::int64_t rows) {
  const ModelConfig& c = config_;
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  const Buffers& b = buffers_;
  rms_norm(b.x, w.post_norm, b.normed, rows, c.hidden_size, static_cast<float>(c.rms_norm_eps));
  project(layer, kGate, w.gate, b.normed, b.gate, rows, c.hidden_size, c.intermediate_size);
  project(layer, kUp, w.up, b.normed, b.up, rows, c.hidden_size, c.intermediate_size);
  silu_multiply(b.gate, b.up, rows * c.intermediate_size);
  project(layer, kDown, w.down, b.gate, b.normed, rows, c.intermediate_size, c.hidden_size);
  add_to(b.x, b.normed, rows * c.hidden_size);
}

Result<float*> Decoder::make_cache(std::int64_t floats) {
  cache_ = Scratch();
  PLEXRL_ASSIGN(cache_, Scratch::make(floats));
  return cache_.data();
}

void Decoder::forward(std::span<const TokenAt> tokens) {
  const ModelConfig& c = config_;
  const auto rows = static_cast<std::int64_t>(tokens.size());
  PLEXRL_CHECK(rows <= kChunk && scratch_.data() != nullptr, "decoder: acquire, at most kChunk");
  group_rows(tokens);
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t from = tokens[static_cast<std::size_t>(i)].token * c.hidden_size;
    float* const x = buffers_.x + i * c.hidden_size;
    if (weights_.embedding.full != nullptr)
      std::copy_n(weights_.embedding.full + from, c.hidden_size, x);
    else
      widen_bf16(weights_.embedding.half + from, x, c.hidden_size);
  }
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    attention(layer, tokens);
    feed_forward(layer, rows);
  }
  rms_norm(buffers_.x, weights_.final_norm, buffers_.normed, rows, c.hidden_size,
           static_cast<float>(c.rms_norm_eps));
}

// x is free after the last layer: it takes the states that are asked for.
void Decoder::logits(std::span<const std::int64_t> tokens, float* out) {
  const std::int64_t width = config_.hidden_size;
  float* to = buffers_.x;
  for (const std::int64_t token : tokens)
    to = std::copy_n(buffers_.normed + token * width, width, to);
  multiply(weights_.head, buffers_.x, out, static_cast<std::int64_t>(tokens.size()), width,
           config_.vocab_size);
}

}  // namespace plexrl::model
