// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/kernels.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine_torch/vector16.h"

namespace plexrl::model {
namespace {

using lanes::Floats;
using lanes::kLanes;

constexpr std::int64_t kBlock = 4096;        // of a long reduction
constexpr float kLeast = -87.0F;             // below it lanes::exp is as good as zero
constexpr std::int64_t kParallel = 1 << 16;  // elements below which threads do not pay

PLEXRL_SIMD void norm_row(const float* x, const float* weight, float* y, std::int64_t size,
                          float eps) {
  Floats squares{};
  std::int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    const Floats v = lanes::load(x + i);
    squares += v * v;
  }
  float total = lanes::sum(squares);
  for (; i < size; ++i) total += x[i] * x[i];
  const float factor = 1.0F / std::sqrt(total / static_cast<float>(size) + eps);
  for (i = 0; i < size; ++i) y[i] = x[i] * factor * weight[i];
}

PLEXRL_SIMD void silu_range(float* gate, const float* up, std::int64_t count) {
  const Floats one = lanes::splat(1.0F);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Floats g = lanes::load(gate + i);
    lanes::store(gate + i, g / (one + lanes::exp(-g)) * lanes::load(up + i));
  }
  if (i == count) return;
  const Floats g = lanes::load_some(gate + i, count - i);
  const Floats u = lanes::load_some(up + i, count - i);
  lanes::store_some(gate + i, g / (one + lanes::exp(-g)) * u, count - i);
}

PLEXRL_INLINE float dot(const float* a, const float* b, std::int64_t count) {
  Floats total{};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) total += lanes::load(a + i) * lanes::load(b + i);
  if (i < count) total += lanes::load_some(a + i, count - i) * lanes::load_some(b + i, count - i);
  return lanes::sum(total);
}

// x becomes exp((x - max x) * factor); returns the sum.
PLEXRL_INLINE float exp_from_max(const float* x, float factor, float* p, std::int64_t count) {
  float most = x[0];
  for (std::int64_t i = 1; i < count; ++i) most = std::max(most, x[i]);
  Floats total{};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Floats e = lanes::exp((lanes::load(x + i) - most) * factor);
    lanes::store(p + i, e);
    total += e;
  }
  float sum = lanes::sum(total);
  if (i == count) return sum;
  lanes::store_some(p + i, lanes::exp((lanes::load_some(x + i, count - i) - most) * factor),
                    count - i);
  for (; i < count; ++i) sum += p[i];
  return sum;
}

PLEXRL_SIMD void attend_head(const float* q, const float* keys, const float* values,
                             std::int64_t dim, std::int64_t length, float* scores, float* out) {
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
  for (std::int64_t t = 0; t < length; ++t) scores[t] = dot(q, keys + t * dim, dim) * scale;
  const float inverse = 1.0F / exp_from_max(scores, 1.0F, scores, length);
  std::fill(out, out + dim, 0.0F);
  for (std::int64_t t = 0; t < length; ++t) {
    const float p = scores[t] * inverse;
    const float* v = values + t * dim;
    for (std::int64_t d = 0; d < dim; ++d) out[d] += p * v[d];
  }
}

// With d = x - max x, the entropy is log(sum e^d) - sum(e^d * d) / sum e^d: two numbers that are
// not negative are added, so nothing cancels.
template <bool kEntropy>
PLEXRL_INLINE LogSum log_sum_of(const float* x, std::int64_t count) {
  float most = x[0];
  for (std::int64_t i = 1; i < count; ++i) most = std::max(most, x[i]);
  double total = 0;
  double weighted = 0;
  for (std::int64_t at = 0; at < count; at += kBlock) {
    const std::int64_t end = std::min(at + kBlock, count);
    Floats part{};
    Floats weighted_part{};
    std::int64_t i = at;
    for (; i + kLanes <= end; i += kLanes) {
      const Floats d = lanes::load(x + i) - most;
      const Floats e = lanes::exp(d);
      part += e;
      if constexpr (kEntropy) weighted_part += e * lanes::max(d, lanes::splat(kLeast));
    }
    float rest = 0;
    if (i < end) {
      float p[kLanes];
      lanes::store(p, lanes::exp(lanes::load_some(x + i, end - i) - most));
      for (std::int64_t j = 0; j < end - i; ++j) {
        rest += p[j];
        if constexpr (kEntropy)
          weighted +=
              static_cast<double>(p[j]) * static_cast<double>(std::max(x[i + j] - most, kLeast));
      }
    }
    total += static_cast<double>(lanes::sum(part)) + static_cast<double>(rest);
    if constexpr (kEntropy) weighted += static_cast<double>(lanes::sum(weighted_part));
  }
  const double log_total = std::log(total);
  return {most + static_cast<float>(log_total), log_total - weighted / total};
}

PLEXRL_SIMD float log_sum_exp_of(const float* x, std::int64_t count) {
  return log_sum_of<false>(x, count).log_sum;
}

PLEXRL_SIMD LogSum log_sum_and_entropy_of(const float* x, std::int64_t count) {
  return log_sum_of<true>(x, count);
}

PLEXRL_SIMD void exp_weights_of(const float* x, float factor, float* p, std::int64_t count) {
  (void)exp_from_max(x, factor, p, count);
}

PLEXRL_SIMD void softmax_times(float* x, std::int64_t count, float log_sum, float factor) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    lanes::store(x + i, lanes::exp(lanes::load(x + i) - log_sum) * factor);
  if (i < count)
    lanes::store_some(x + i, lanes::exp(lanes::load_some(x + i, count - i) - log_sum) * factor,
                      count - i);
}

PLEXRL_SIMD double squares_of(const float* x, std::int64_t count) {
  double lanes_of[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int j = 0; j < kLanes; ++j) {
      const double v = static_cast<double>(x[i + j]);
      lanes_of[j] += v * v;
    }
  for (; i < count; ++i) lanes_of[0] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  double total = 0;
  for (const double lane : lanes_of) total += lane;
  return total;
}

struct AdamWFloats {
  float decay, beta1, one_minus_beta1, beta2, one_minus_beta2, eps, step_size, root_correction,
      scale;
};

PLEXRL_SIMD void adamw_range(const AdamWFloats& a, float* w, const float* g, float* m, float* v,
                             std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float grad = g[i] * a.scale;
    m[i] = m[i] * a.beta1 + grad * a.one_minus_beta1;
    v[i] = v[i] * a.beta2 + grad * grad * a.one_minus_beta2;
    const float denominator = std::sqrt(v[i]) / a.root_correction + a.eps;
    w[i] = w[i] * a.decay - a.step_size * (m[i] / denominator);
  }
}

}  // namespace

void rms_norm(const float* x, const float* weight, float* y, std::int64_t rows, std::int64_t size,
              float eps) {
#pragma omp parallel for schedule(static) if (rows * size > kParallel)
  for (std::int64_t r = 0; r < rows; ++r) norm_row(x + r * size, weight, y + r * size, size, eps);
}

PLEXRL_SIMD void add_to(float* x, const float* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) x[i] += y[i];
}

void add_bias(float* x, const float* bias, std::int64_t rows, std::int64_t size) {
  for (std::int64_t r = 0; r < rows; ++r) add_to(x + r * size, bias, size);
}

void silu_multiply(float* gate, const float* up, std::int64_t count) {
#pragma omp parallel for schedule(static) if (count > kParallel)
  for (std::int64_t at = 0; at < count; at += kBlock)
    silu_range(gate + at, up + at, std::min(kBlock, count - at));
}

PLEXRL_SIMD void rotate(float* x, const float* cosine, const float* sine, std::int64_t heads,
                        std::int64_t dim) {
  const std::int64_t half = dim / 2;
  for (std::int64_t h = 0; h < heads; ++h) {
    float* a = x + h * dim;
    float* b = a + half;
    for (std::int64_t i = 0; i < half; ++i) {
      const float first = a[i];
      const float second = b[i];
      a[i] = first * cosine[i] - second * sine[i];
      b[i] = second * cosine[i] + first * sine[i];
    }
  }
}

void attend(const AttentionShape& shape, const float* q, const float* keys, const float* values,
            std::int64_t length, float* scores, float* out) {
  const std::int64_t group = shape.heads / shape.kv_heads;
  for (std::int64_t h = 0; h < shape.heads; ++h) {
    const std::int64_t from = h / group * shape.capacity * shape.dim;
    attend_head(q + h * shape.dim, keys + from, values + from, shape.dim, length, scores,
                out + h * shape.dim);
  }
}

float log_sum_exp(const float* x, std::int64_t count) { return log_sum_exp_of(x, count); }

LogSum log_sum_and_entropy(const float* x, std::int64_t count) {
  return log_sum_and_entropy_of(x, count);
}

void exp_weights(const float* x, float inverse_temperature, float* p, std::int64_t count) {
  exp_weights_of(x, inverse_temperature, p, count);
}

void log_sum_slope(float* logits, std::int64_t count, float log_sum, float slope) {
  softmax_times(logits, count, log_sum, -slope);
}

double sum_of_squares(std::span<const float> x) {
  const auto count = static_cast<std::int64_t>(x.size());
  const std::int64_t blocks = (count + kBlock - 1) / kBlock;
  std::vector<double> parts(static_cast<std::size_t>(blocks));
#pragma omp parallel for schedule(static) if (count > kParallel)
  for (std::int64_t b = 0; b < blocks; ++b)
    parts[static_cast<std::size_t>(b)] =
        squares_of(x.data() + b * kBlock, std::min(kBlock, count - b * kBlock));
  double total = 0;
  for (const double part : parts) total += part;
  return total;
}

void adamw(const AdamW& a, std::span<float> weights, std::span<const float> gradients,
           std::span<float> m, std::span<float> v) {
  const auto t = static_cast<double>(a.step);
  const double correction1 = 1.0 - std::pow(a.beta1, t);
  const double correction2 = 1.0 - std::pow(a.beta2, t);
  const AdamWFloats floats{static_cast<float>(1.0 - a.learning_rate * a.weight_decay),
                           static_cast<float>(a.beta1),
                           static_cast<float>(1.0 - a.beta1),
                           static_cast<float>(a.beta2),
                           static_cast<float>(1.0 - a.beta2),
                           static_cast<float>(a.eps),
                           static_cast<float>(a.learning_rate / correction1),
                           static_cast<float>(std::sqrt(correction2)),
                           static_cast<float>(a.grad_scale)};
  const auto count = static_cast<std::int64_t>(weights.size());
#pragma omp parallel for schedule(static) if (count > kParallel)
  for (std::int64_t at = 0; at < count; at += kBlock)
    adamw_range(floats, weights.data() + at, gradients.data() + at, m.data() + at, v.data() + at,
                std::min(kBlock, count - at));
}

}  // namespace plexrl::model
