// SPDX-License-Identifier: Apache-2.0
// Own kernels of the inference path and the optimiser, float32, row by row: the bits of a row
// depend on that row only. Each has its ATen form as oracle in the unit tests. No allocation, no
// errors; shapes are the caller's duty. Any thread; work is shared by OpenMP where there is enough.
#pragma once

#include <cstdint>
#include <span>

namespace plexrl::model {

// y[r] = x[r] / sqrt(mean(x[r]^2) + eps) * weight; rows of `size`. y may be x.
void rms_norm(const float* x, const float* weight, float* y, std::int64_t rows, std::int64_t size,
              float eps);

// x += y
void add_to(float* x, const float* y, std::int64_t count);

// x[r] += bias, rows of `size`
void add_bias(float* x, const float* bias, std::int64_t rows, std::int64_t size);

// gate = silu(gate) * up
void silu_multiply(float* gate, const float* up, std::int64_t count);

// Rotates `heads` heads of size dim in place, half-split form (Hugging Face): with first half a and
// second half b, (a cos - b sin, b cos + a sin). cosine and sine have dim / 2 values.
void rotate(float* x, const float* cosine, const float* sine, std::int64_t heads, std::int64_t dim);

// Causal attention of one token at `length - 1` over its row's cache.
// q, out [heads, dim]; keys, values [kv_heads, capacity, dim]; scores: scratch of `length` floats.
struct AttentionShape {
  std::int64_t heads, kv_heads, dim, capacity;
};
void attend(const AttentionShape& shape, const float* q, const float* keys, const float* values,
            std::int64_t length, float* scores, float* out);

// log(sum(exp(x)))
[[nodiscard]] float log_sum_exp(const float* x, std::int64_t count);
// The same with the entropy, in nats, of softmax(x). log_sum has the bits of log_sum_exp.
struct LogSum {
  float log_sum;
  double entropy;
};
[[nodiscard]] LogSum log_sum_and_entropy(const float* x, std::int64_t count);
// p[i] = exp((x[i] - max x) * inverse_temperature), not normalised.
void exp_weights(const float* x, float inverse_temperature, float* p, std::int64_t count);

// logits become -slope * softmax, the derivative of -slope * log_sum_exp: what every derivative by
// a log-probability has in common, whatever the target. `log_sum` is log_sum_exp of the row.
void log_sum_slope(float* logits, std::int64_t count, float log_sum, float slope);

// Sum of squares in double; blocks of fixed size added in order, so the bits do not depend on the
// number of threads. Infinite or NaN when an element is.
[[nodiscard]] double sum_of_squares(std::span<const float> x);

// One AdamW step over flat arenas as torch.optim.AdamW computes it (decoupled decay, bias
// correction, no amsgrad). Gradients are multiplied by grad_scale first.
struct AdamW {
  double learning_rate, beta1, beta2, eps, weight_decay;
  double grad_scale;
  std::uint64_t step;  // of this update, from 1
};
void adamw(const AdamW& a, std::span<float> weights, std::span<const float> gradients,
           std::span<float> m, std::span<float> v);

}  // namespace plexrl::model
