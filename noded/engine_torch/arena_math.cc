// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/arena_math.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <torch/version.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "engine_torch/aten_device.h"

namespace plexrl::model {
namespace {

// Elements that one step of the ATen AdamW works on: its temporaries are a few times this.
constexpr std::int64_t kAdamBlock = 1 << 24;

bool on_host(const ModelDevice& device) { return device.math == ModelDevice::Math::kKernels; }

Result<ModelDevice> cuda_device(const std::string& text, int number) {
  if (!at::globalContext().hasCUDA())
    return error(Code::UNSUPPORTED,
                 "device %s: LibTorch %s of this plexrl-engine has no CUDA: configure "
                 "--with-libtorch=DIR with a CUDA build of it, on a node with a driver",
                 text.c_str(), TORCH_VERSION);
  // The first allocation starts CUDA, which fails where the driver or the device does.
  try {
    static_cast<void>(at::empty({1}, at::Device(at::kCUDA, static_cast<at::DeviceIndex>(number))));
  } catch (const std::exception& e) {
    return error(Code::NOT_FOUND, "device %s: %.200s", text.c_str(), e.what());
  }
  return ModelDevice{ModelDevice::Math::kAten, number};
}

// As torch.optim.AdamW, on one block; g is a temporary.
void adamw_block(const AdamW& a, at::Tensor w, at::Tensor g, at::Tensor m, at::Tensor v) {
  const auto t = static_cast<double>(a.step);
  const double correction1 = 1.0 - std::pow(a.beta1, t);
  const double correction2 = 1.0 - std::pow(a.beta2, t);
  g.mul_(a.grad_scale);
  m.mul_(a.beta1).add_(g, 1.0 - a.beta1);
  v.mul_(a.beta2).addcmul_(g, g, 1.0 - a.beta2);
  const at::Tensor scale = v.sqrt().div_(std::sqrt(correction2)).add_(a.eps);
  w.mul_(1.0 - a.learning_rate * a.weight_decay);
  w.addcdiv_(m, scale, -a.learning_rate / correction1);
}

}  // namespace

Result<ModelDevice> open_model_device(const std::string& text) {
  if (text == "cpu") return ModelDevice{};
  int number = -1;
  const std::string prefix = "cuda:";
  const char* const end = text.data() + text.size();
  if (text.starts_with(prefix)) {
    const auto [rest, failure] = std::from_chars(text.data() + prefix.size(), end, number);
    if (failure != std::errc() || rest != end) number = -1;
  }
  if (number < 0 || number > 127)
    return error(Code::INVALID_ARGUMENT, "device '%s': must be cpu or cuda:N", text.c_str());
  return cuda_device(text, number);
}

Status synchronize(const ModelDevice& device) {
  if (device.cuda < 0) return {};
  try {
    at::detail::getCUDAHooks().deviceSynchronize(static_cast<at::DeviceIndex>(device.cuda));
  } catch (const std::exception& e) {
    return error(Code::LOST, "device cuda:%d: %s", device.cuda, e.what());
  }
  return {};
}

void fill_zero(const ModelDevice& device, std::span<float> arena) {
  if (on_host(device))
    std::fill(arena.begin(), arena.end(), 0.0F);
  else
    tensor_at(device, arena).zero_();
}

void copy_floats(const ModelDevice& device, const float* from, float* to, std::size_t count) {
  if (on_host(device))
    std::copy_n(from, count, to);
  else
    tensor_at(device, {to, count}).copy_(tensor_at(device, {from, count}));
}

void round_floats(const ModelDevice& device, std::span<const float> from, std::span<Bf16> to) {
  const auto count = static_cast<std::int64_t>(from.size());
  if (on_host(device)) return round_bf16(from.data(), to.data(), count);
  TensorSlot all;
  all.cols = count;
  all.vector = true;
  tensor_at(device, std::span<const Bf16>(to).data(), all).copy_(tensor_at(device, from));
}

double sum_of_squares(const ModelDevice& device, std::span<const float> arena) {
  if (on_host(device)) return sum_of_squares(arena);
  return tensor_at(device, arena).square().sum(at::kDouble).item<double>();
}

void adamw(const ModelDevice& device, const AdamW& a, std::span<float> weights,
           std::span<const float> gradients, std::span<float> m, std::span<float> v) {
  if (on_host(device)) return adamw(a, weights, gradients, m, v);
  const c10::NoGradGuard no_grad;
  const auto count = static_cast<std::int64_t>(weights.size());
  for (std::int64_t at = 0; at < count; at += kAdamBlock) {
    const std::int64_t size = std::min(kAdamBlock, count - at);
    const auto part = [&](std::span<const float> arena) {
      return tensor_at(device, arena.data() + at, {size});
    };
    adamw_block(a, part(weights), part(gradients).clone(), part(m), part(v));
  }
}

std::vector<float> to_host(const ModelDevice& device, std::span<const float> arena) {
  std::vector<float> host(arena.size());
  if (arena.empty()) return host;
  tensor_at(ModelDevice{}, host).copy_(tensor_at(device, arena));
  return host;
}

void from_host(const ModelDevice& device, std::span<const float> host, float* arena) {
  if (host.empty()) return;
  tensor_at(device, {arena, host.size()}).copy_(tensor_at(ModelDevice{}, host));
}

}  // namespace plexrl::model
