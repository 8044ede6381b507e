// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/bf16_linear.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

namespace plexrl::model {
namespace {

const Bf16* numbers(const at::Tensor& tensor) {
  return reinterpret_cast<const Bf16*>(tensor.data_ptr());
}

// Contiguous.
at::Tensor rounded(const at::Tensor& x) {
  if (x.scalar_type() == at::kBFloat16) return x;
  const at::Tensor from = x.contiguous();
  at::Tensor to = at::empty(from.sizes(), from.options().dtype(at::kBFloat16));
  round_bf16(from.data_ptr<float>(), reinterpret_cast<Bf16*>(to.data_ptr()), from.numel());
  return to;
}

at::Tensor half_product(const at::Tensor& x, const at::Tensor& weight) {
  const at::Tensor y = at::empty({x.size(0), weight.size(0)}, x.options().dtype(at::kFloat));
  row_gemm_bf16(numbers(rounded(x)), numbers(rounded(weight)), y.data_ptr<float>(), x.size(0),
                x.size(1), weight.size(0));
  return y;
}

void half_product_back(const at::Tensor& y, const at::Tensor& weight, const at::Tensor& x) {
  row_gemm_bf16_back(numbers(rounded(y)), numbers(rounded(weight)), x.data_ptr<float>(), y.size(0),
                     weight.size(0), weight.size(1));
}

// A master is rounded twice, in both directions: a copy kept between them would be half of it.
struct Linear : public torch::autograd::Function<Linear> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight) {
    context->save_for_backward({weight.requires_grad() ? x : at::Tensor(), weight});
    return half_product(x, weight);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const torch::autograd::variable_list saved = context->get_saved_variables();
    const at::Tensor& weight = saved[1];
    const at::Tensor y = gradients[0].contiguous();
    at::Tensor by_x, by_weight;
    if (context->needs_input_grad(0)) {
      by_x = at::empty({y.size(0), weight.size(1)}, y.options());
      half_product_back(y, weight, by_x);
    }
    if (context->needs_input_grad(1)) by_weight = at::mm(y.t(), saved[0]);
    return {by_x, by_weight};
  }
};

}  // namespace

at::Tensor bf16_linear(const at::Tensor& x, const at::Tensor& weight, ModelDevice::Math math) {
  if (math == ModelDevice::Math::kKernels) return Linear::apply(x, weight);
  return at::mm(x.to(at::kBFloat16), weight.to(at::kBFloat16).t()).to(at::kFloat);
}

void bf16_linear_back(const at::Tensor& y, const at::Tensor& weight, at::Tensor& x,
                      ModelDevice::Math math) {
  if (math == ModelDevice::Math::kKernels) return half_product_back(y, weight, x);
  x.copy_(at::mm(y.to(at::kBFloat16), weight));
}

// The difference and the sum are exact: the two numbers are close.
at::Tensor round_through(const at::Tensor& x) {
  at::Tensor change;
  {
    const c10::NoGradGuard no_grad;
    change = x.to(at::kBFloat16).to(at::kFloat) - x;
  }
  return x + change;
}

}  // namespace plexrl::model
