// SPDX-License-Identifier: Apache-2.0
// Views of a model's memory as tensors of its device. Includes ATen: for the few source files that
// need it.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "engine_torch/arena_layout.h"
#include "engine_torch/model_state.h"

namespace plexrl::model {

[[nodiscard]] inline at::Device torch_device(const ModelDevice& device) {
  if (device.cuda < 0) return at::Device(at::kCPU);
  return {at::kCUDA, static_cast<at::DeviceIndex>(device.cuda)};
}

// The memory stays its owner's; it must be mapped while the tensor is used.
[[nodiscard]] inline at::Tensor tensor_at(const ModelDevice& device, const float* at,
                                          at::IntArrayRef shape) {
  const at::Device where = torch_device(device);
  return at::for_blob(const_cast<float*>(at), shape)
      .options(at::TensorOptions().dtype(at::kFloat).device(where))
      .target_device(where)
      .make_tensor();
}
[[nodiscard]] inline at::Tensor tensor_at(const ModelDevice& device, std::span<const float> all) {
  return tensor_at(device, all.data(), {static_cast<std::int64_t>(all.size())});
}
[[nodiscard]] inline at::Tensor tensor_at(const ModelDevice& device, const float* arena,
                                          const TensorSlot& slot) {
  return tensor_at(device, arena + slot.offset, slot.shape());
}

// Of a bfloat16 arena.
[[nodiscard]] inline at::Tensor tensor_at(const ModelDevice& device, const Bf16* arena,
                                          const TensorSlot& slot) {
  const at::Device where = torch_device(device);
  return at::for_blob(const_cast<Bf16*>(arena + slot.offset), slot.shape())
      .options(at::TensorOptions().dtype(at::kBFloat16).device(where))
      .target_device(where)
      .make_tensor();
}

}  // namespace plexrl::model
