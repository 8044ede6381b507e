// SPDX-License-Identifier: Apache-2.0
// forward_backward: micro-batches of consecutive data (training_batch.h), one per step. The trunk
// uses autograd; head and loss are done by hand in chunks, because the derivative of every loss by
// a logit is slope * (onehot - softmax), and the logits of a batch would be large.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/log.h"
#include "engine_torch/arena_math.h"
#include "engine_torch/aten_device.h"
#include "engine_torch/kernels.h"
#include "engine_torch/losses.h"
#include "engine_torch/op_checks.h"
#include "engine_torch/op_factories.h"
#include "engine_torch/train_decoder.h"
#include "engine_torch/training_batch.h"

namespace plexrl::model {
namespace {

using wire::LossKind;

constexpr std::int64_t kHeadRows = 256;  // positions whose logits exist at a time

class ForwardBackwardOp final : public OpRun {
 public:
  ForwardBackwardOp(const OpEnv& env, const wire::ForwardBackwardArgsT& args,
                    std::vector<Datum> data)
      : state_(env.state),
        rule_{args.loss, static_cast<double>(args.clip_low), static_cast<double>(args.clip_high),
              static_cast<double>(args.beta)},
        backward_(!args.forward_only),
        data_(std::move(data)),
        batches_(split_micro_batches(env.state->layout->config, data_)) {
    for (const Datum& datum : data_) logprobs_.emplace_back(datum.tokens.size(), 0.0F);
  }

  Result<bool> step() override;
  void abandon() override { roll_back(); }
  wire::OpValueUnion take_result() override;
  [[nodiscard]] std::uint64_t tokens_done() const noexcept override { return tokens_done_; }

 private:
  Result<bool> advance();
  [[nodiscard]] Status begin();
  [[nodiscard]] Status run(const MicroBatch& batch);
  [[nodiscard]] Status head_and_loss(const MicroBatch& batch,
                                     const std::vector<PackedPosition>& positions,
                                     const at::Tensor& states, at::Tensor* states_gradient);
  [[nodiscard]] Status score(const MicroBatch& batch, const PackedPosition& at, float* logits,
                             bool* flows);
  [[nodiscard]] Result<float> slope_of(std::size_t datum, std::size_t index, float logp,
                                       double entropy);
  void count(const LossTerm& term, double drop, double entropy);
  [[nodiscard]] Status finish();
  void roll_back();

  ModelState* state_;
  LossRule rule_;
  bool backward_;
  std::vector<Datum> data_;
  std::vector<MicroBatch> batches_;
  std::size_t next_ = 0;
  bool begun_ = false;
  std::optional<TrainDecoder> decoder_;
  bool touched_ = false;  // the gradients arena may differ from what it was
  at::Tensor earlier_;    // gradients of earlier ops of this accumulation

  std::vector<std::vector<float>> logprobs_;
  double loss_ = 0, ratio_ = 0, drop_ = 0, entropy_ = 0;
  std::uint64_t counted_ = 0, clipped_ = 0;
  std::uint64_t tokens_done_ = 0;
};

Result<bool> ForwardBackwardOp::step() {
  Result<bool> done = guarded("forward_backward", [this] { return advance(); });
  if (!done.has_value()) roll_back();
  return done;
}

Result<bool> ForwardBackwardOp::advance() {
  PLEXRL_TRY(begin());
  decoder_.emplace(*state_, backward_);  // views are cheap; none outlives the step
  const Status status = run(batches_[next_]);
  decoder_.reset();
  PLEXRL_TRY(status);
  if (++next_ < batches_.size()) return false;
  PLEXRL_TRY(finish());
  return true;
}

Status ForwardBackwardOp::begin() {
  if (begun_) return {};
  begun_ = true;
  if (backward_ && state_->gradients_pending) {
    earlier_ = tensor_at(state_->device, state_->memory.gradients).clone();
  }
  return {};
}

// The gradients as they were before this op.
void ForwardBackwardOp::roll_back() {
  if (!touched_) return;
  const std::span<float> gradients = state_->memory.gradients;
  const Result<bool> done = guarded("forward_backward", [&]() -> Result<bool> {
    if (earlier_.defined())
      tensor_at(state_->device, gradients).copy_(earlier_);
    else
      fill_zero(state_->device, gradients);
    return true;
  });
  // Host memory can always be written; a device that cannot is lost, and its engine with it.
  if (!done) PLEXRL_LOG(kError, "gradients are not rolled back: %s", done.error().text().c_str());
  touched_ = false;
}

Status ForwardBackwardOp::run(const MicroBatch& batch) {
  const c10::AutoGradMode grad_mode(backward_);
  const at::Device where = torch_device(state_->device);
  const auto on_device = [&](std::vector<std::int64_t>& values) {
    return at::from_blob(values.data(), {static_cast<std::int64_t>(values.size())}, at::kLong)
        .to(where, false, true);
  };
  std::vector<std::int64_t> tokens = packed_tokens(batch, data_);
  const at::Tensor hidden = decoder_->hidden(on_device(tokens), batch.shape);
  const std::vector<PackedPosition> positions = packed_positions(batch, data_);
  std::vector<std::int64_t> scored;
  for (const PackedPosition& at : positions) {
    scored.push_back(at.token);
    tokens_done_ += at.row_count;
  }
  const c10::NoGradGuard no_grad;
  const at::Tensor flat = hidden.detach();
  const at::Tensor index = on_device(scored);
  at::Tensor states_gradient;
  const at::Tensor states = flat.index_select(0, index);
  PLEXRL_TRY(head_and_loss(batch, positions, states, &states_gradient));
  if (!backward_ || !states_gradient.defined()) return {};
  at::Tensor gradient = at::zeros_like(flat);
  gradient.index_copy_(0, index, states_gradient);
  touched_ = true;
  if (hidden.requires_grad()) hidden.backward(gradient);
  return {};
}

// `states` [positions, hidden]. Leaves the derivative by them, undefined when all slopes are zero.
Status ForwardBackwardOp::head_and_loss(const MicroBatch& batch,
                                        const std::vector<PackedPosition>& positions,
                                        const at::Tensor& states, at::Tensor* states_gradient) {
  at::Tensor head_gradient = decoder_->head_gradient();
  at::Tensor gradient = at::zeros_like(states);
  bool any = false;
  for (std::int64_t at = 0; at < states.size(0); at += kHeadRows) {
    const std::int64_t rows = std::min(kHeadRows, states.size(0) - at);
    const at::Tensor part = states.narrow(0, at, rows);
    // Rows are scored on the host: on the CPU this is the tensor itself.
    const at::Tensor product = decoder_->logits(part);
    const at::Tensor scored = product.cpu();
    bool flows = false;
    for (std::int64_t i = 0; i < rows; ++i)
      PLEXRL_TRY(score(batch, positions[static_cast<std::size_t>(at + i)],
                       scored.data_ptr<float>() + i * scored.size(1), &flows));
    if (!backward_ || !flows) continue;
    any = true;
    const at::Tensor logits = scored.to(product.device());  // their derivatives by now
    at::Tensor target = gradient.narrow(0, at, rows);
    decoder_->logits_back(logits, target);
    if (!head_gradient.defined()) continue;
    touched_ = true;
    head_gradient.addmm_(logits.t(), part);
  }
  if (any) *states_gradient = gradient;
  return {};
}

// Turns a row of logits into the derivative by them of all that share it, and counts each.
Status ForwardBackwardOp::score(const MicroBatch& batch, const PackedPosition& at, float* logits,
                                bool* flows) {
  const std::int64_t vocab = state_->layout->config.vocab_size;
  const auto [log_sum, entropy] = log_sum_and_entropy(logits, vocab);
  std::vector<std::pair<std::int32_t, float>> slopes;  // by target
  float total = 0;
  for (std::size_t row = at.first_row; row < at.first_row + at.row_count; ++row) {
    const std::size_t d = batch.rows[row];
    const std::int32_t target = data_[d].targets[at.index];
    PLEXRL_ASSIGN(const float slope,
                  slope_of(d, at.index, logits[target] - log_sum, static_cast<double>(entropy)));
    slopes.emplace_back(target, slope);
    total += slope;
    *flows = *flows || slope != 0;
  }
  if (!backward_) return {};
  log_sum_slope(logits, vocab, log_sum, total);
  for (const auto& [target, slope] : slopes) logits[target] += slope;
  return {};
}

// Of the loss by the log-probability, which is kept.
Result<float> ForwardBackwardOp::slope_of(std::size_t datum, std::size_t index, float logp,
                                          double entropy) {
  const Datum& of = data_[datum];
  const auto weight = static_cast<double>(of.weights[index]);
  const double q = of.sampler.empty() ? 0.0 : static_cast<double>(of.sampler[index]);
  const LossTerm term = loss_term(rule_, {static_cast<double>(logp), weight, q});
  const auto slope = static_cast<float>(term.slope);
  if (!std::isfinite(logp) || !std::isfinite(term.loss) || !std::isfinite(term.ratio) ||
      !std::isfinite(slope))
    return error(Code::INVALID_ARGUMENT,
                 "forward_backward: data[%zu] position %zu: the loss or its ratio is not finite "
                 "(log-probability %g, given %g, weight %g); nothing was added to the gradients",
                 datum, index, static_cast<double>(logp), q, weight);
  logprobs_[datum][index] = logp;
  count(term, q - static_cast<double>(logp), entropy);
  return slope;
}

void ForwardBackwardOp::count(const LossTerm& term, double drop, double entropy) {
  loss_ += term.loss;
  if (!term.counts) return;
  ++counted_;
  clipped_ += term.clipped ? 1 : 0;
  ratio_ += term.ratio;
  entropy_ += entropy;
  if (rule_.kind != LossKind::CrossEntropy) drop_ += drop;
}

Status ForwardBackwardOp::finish() {
  if (!backward_) return {};
  if (!std::isfinite(sum_of_squares(state_->device, state_->memory.gradients)))
    return error(Code::INVALID_ARGUMENT,
                 "forward_backward: the gradients are not finite; nothing was added to them");
  state_->gradients_pending = true;
  touched_ = false;
  earlier_ = at::Tensor();
  return {};
}

wire::OpValueUnion ForwardBackwardOp::take_result() {
  wire::ForwardBackwardResultT result;
  const double n = counted_ == 0 ? 1.0 : static_cast<double>(counted_);
  result.loss_sum = loss_;
  result.token_count = counted_;
  result.ratio_mean = counted_ == 0 ? 1.0 : ratio_ / n;
  result.clip_fraction = static_cast<double>(clipped_) / n;
  result.logprob_drop_mean = drop_ / n;
  result.entropy_mean = entropy_ / n;
  for (std::vector<float>& values : logprobs_) {
    auto row = std::make_unique<wire::FloatRowT>();
    row->values = std::move(values);
    result.logprobs.push_back(std::move(row));
  }
  wire::OpValueUnion value;
  value.Set(std::move(result));
  return value;
}

Status check_length(const std::string& what, const char* field, std::size_t have,
                    std::size_t want) {
  if (have == want) return {};
  return error(Code::INVALID_ARGUMENT, "%s: %s has %zu values, tokens has %zu; they must agree",
               what.c_str(), field, have, want);
}

Result<Datum> check_datum(const std::string& what, const ModelConfig& config, LossKind loss,
                          const wire::DatumT& in) {
  if (in.tokens.empty())
    return error(Code::INVALID_ARGUMENT, "%s: needs at least one token", what.c_str());
  if (in.tokens.size() > static_cast<std::size_t>(config.max_positions))
    return error(Code::TOO_LARGE, "%s: %zu tokens, the model has %lld positions", what.c_str(),
                 in.tokens.size(), static_cast<long long>(config.max_positions));
  PLEXRL_TRY(check_length(what, "target_tokens", in.target_tokens.size(), in.tokens.size()));
  PLEXRL_TRY(check_tokens(what + ".tokens", in.tokens, config.vocab_size));
  PLEXRL_TRY(check_tokens(what + ".target_tokens", in.target_tokens, config.vocab_size));
  const bool policy = loss != LossKind::CrossEntropy;
  const std::vector<float>& weights = policy ? in.advantages : in.weights;
  const char* name = policy ? "advantages" : "weights";
  PLEXRL_TRY(check_length(what, name, weights.size(), in.tokens.size()));
  PLEXRL_TRY(check_finite(what + "." + name, weights));
  if (policy) {
    PLEXRL_TRY(check_length(what, "logprobs", in.logprobs.size(), in.tokens.size()));
    PLEXRL_TRY(check_finite(what + ".logprobs", in.logprobs));
  }
  return Datum{in.tokens, in.target_tokens, weights, policy ? in.logprobs : std::vector<float>()};
}

Status check_loss(const wire::ForwardBackwardArgsT& args) {
  if (args.loss > LossKind::MAX)
    return error(Code::UNSUPPORTED, "forward_backward: loss %d is not known to this version",
                 static_cast<int>(args.loss));
  const bool sound =
      std::isfinite(args.clip_high) && args.clip_low >= 0 && args.clip_low <= args.clip_high;
  const bool clips = args.loss == LossKind::Ppo || args.loss == LossKind::Cispo;
  if (clips && !sound)
    return error(Code::INVALID_ARGUMENT,
                 "forward_backward: clip_low %g, clip_high %g: need 0 <= clip_low <= clip_high "
                 "(absolute ratios)",
                 static_cast<double>(args.clip_low), static_cast<double>(args.clip_high));
  if (args.loss == LossKind::Dro && !(std::isfinite(args.beta) && args.beta >= 0))
    return error(Code::INVALID_ARGUMENT, "forward_backward: beta %g must be finite, 0 or more",
                 static_cast<double>(args.beta));
  return {};
}

}  // namespace

OpRunResult make_forward_backward(const OpEnv& env, const wire::ForwardBackwardArgsT& args) {
  const ModelLayout& layout = *env.state->layout;
  if (layout.mode == wire::TrainMode::None)
    return error(Code::UNSUPPORTED, "forward_backward: this model is for sampling only");
  PLEXRL_TRY(check_loss(args));
  if (args.data.empty()) return error(Code::INVALID_ARGUMENT, "forward_backward: no data");
  if (args.data.size() > kMaxRows)
    return error(Code::TOO_LARGE, "forward_backward: %zu data, at most %zu in one op",
                 args.data.size(), kMaxRows);
  std::vector<Datum> data;
  std::size_t tokens = 0;
  for (std::size_t i = 0; i < args.data.size(); ++i) {
    const std::string what = "forward_backward: data[" + std::to_string(i) + "]";
    if (!args.data[i]) return error(Code::INVALID_ARGUMENT, "%s: is missing", what.c_str());
    PLEXRL_ASSIGN(Datum datum, check_datum(what, layout.config, args.loss, *args.data[i]));
    tokens += datum.tokens.size();
    data.push_back(std::move(datum));
  }
  if (tokens > kMaxOpTokens)
    return error(Code::TOO_LARGE, "forward_backward: %zu tokens, at most %zu in one op", tokens,
                 kMaxOpTokens);
  return std::unique_ptr<OpRun>(std::make_unique<ForwardBackwardOp>(env, args, std::move(data)));
}

}  // namespace plexrl::model
