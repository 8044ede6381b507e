// SPDX-License-Identifier: Apache-2.0
// Products of float32 tensors with bfloat16 weights, known to autograd. Includes ATen: for the few
// source files that need it.
#pragma once

#include <ATen/ATen.h>

#include "engine_torch/model_state.h"

namespace plexrl::model {

// x [rows, in] float32, rounded for the product; weight [out, in] bfloat16, or a float32 master
// that requires grad, rounded likewise. Returns x weight^T, float32. Gradients: by x from the
// rounded gradient by y and the rounded weight; by a master from both in float32. On kKernels by
// bf16_gemm.h, which sums in float32 and rounds nothing after; else by ATen, whose products are
// rounded to bfloat16.
[[nodiscard]] at::Tensor bf16_linear(const at::Tensor& x, const at::Tensor& weight,
                                     ModelDevice::Math math);

// y [rows, out] times weight [out, in] bfloat16, into x [rows, in] float32; not for autograd.
void bf16_linear_back(const at::Tensor& y, const at::Tensor& weight, at::Tensor& x,
                      ModelDevice::Math math);

// x rounded to bfloat16, in float32; its gradient passes as it is.
[[nodiscard]] at::Tensor round_through(const at::Tensor& x);

}  // namespace plexrl::model
