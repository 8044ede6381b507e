// SPDX-License-Identifier: Apache-2.0
// What ops do to whole arenas, wherever these are: on the host by our own kernels, on a device by
// ATen. The ATen forms agree with the kernels within rounding, not bit for bit. They throw what
// LibTorch throws: call them inside of `guarded`. Compute or memory thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine_torch/kernels.h"
#include "engine_torch/model_state.h"

namespace plexrl::model {

// "cpu" or "cuda:N". INVALID_ARGUMENT for another text; UNSUPPORTED when this LibTorch has no CUDA.
[[nodiscard]] Result<ModelDevice> open_model_device(const std::string& text);
// Waits for everything that was begun on the device. Nothing to do on the host.
[[nodiscard]] Status synchronize(const ModelDevice& device);

void fill_zero(const ModelDevice& device, std::span<float> arena);
// Both on the device; they do not overlap.
void copy_floats(const ModelDevice& device, const float* from, float* to, std::size_t count);
// To bfloat16; of the same number of elements, both on the device.
void round_floats(const ModelDevice& device, std::span<const float> from, std::span<Bf16> to);
[[nodiscard]] double sum_of_squares(const ModelDevice& device, std::span<const float> arena);
void adamw(const ModelDevice& device, const AdamW& a, std::span<float> weights,
           std::span<const float> gradients, std::span<float> m, std::span<float> v);

[[nodiscard]] std::vector<float> to_host(const ModelDevice& device, std::span<const float> arena);
void from_host(const ModelDevice& device, std::span<const float> host, float* arena);

}  // namespace plexrl::model
