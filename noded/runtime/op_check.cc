// SPDX-License-Identifier: Apache-2.0
#include "runtime/op_check.h"

#include <algorithm>
#include <cmath>

#include "runtime/op_limits.h"

namespace plexrl::runtime {
namespace {

template <class T>
bool none(const std::vector<std::unique_ptr<T>>& list) {
  return std::any_of(list.begin(), list.end(), [](const auto& item) { return item == nullptr; });
}

Status check_tokens(const std::vector<std::int32_t>& tokens, const ModelShape& shape,
                    const char* what, std::size_t row) {
  if (tokens.empty()) return error(Code::INVALID_ARGUMENT, "%s %zu is empty", what, row);
  for (const std::int32_t token : tokens) {
    if (token < 0 || static_cast<std::uint32_t>(token) >= shape.vocab_size)
      return error(Code::INVALID_ARGUMENT, "%s %zu: token %d is outside of the vocabulary of %u",
                   what, row, token, shape.vocab_size);
  }
  return {};
}

Status check_length(std::uint64_t length, const ModelShape& shape, const char* what,
                    std::size_t row) {
  if (length <= shape.max_positions) return {};
  return error(Code::TOO_LARGE, "%s %zu needs %llu positions, the model has %u", what, row,
               static_cast<unsigned long long>(length), shape.max_positions);
}

Status check_sampling_options(const wire::GenerateArgsT& args) {
  if (args.max_new_tokens == 0) return error(Code::INVALID_ARGUMENT, "max_new_tokens is 0");
  if (!(args.temperature >= 0.0F) || !std::isfinite(args.temperature))
    return error(Code::INVALID_ARGUMENT, "temperature %g must be 0 or more",
                 double{args.temperature});
  if (!(args.top_p > 0.0F && args.top_p <= 1.0F))
    return error(Code::INVALID_ARGUMENT, "top_p %g is not in (0, 1]", double{args.top_p});
  return {};
}

Result<OpSize> check(const wire::GenerateArgsT& args, const ModelShape& shape) {
  if (!args.groups.empty())
    return error(Code::INVALID_ARGUMENT, "generate: groups are not for clients");
  if (args.prompts.empty() || none(args.prompts))
    return error(Code::INVALID_ARGUMENT, "generate needs at least one prompt");
  const std::uint64_t rows = args.prompts.size() * std::uint64_t{args.samples_per_prompt};
  if (rows == 0 || rows > kMaxRows)
    return error(Code::INVALID_ARGUMENT, "%llu rows: 1 to %u are possible",
                 static_cast<unsigned long long>(rows), kMaxRows);
  PLEXRL_TRY(check_sampling_options(args));
  OpSize size;
  size.rows = rows;
  for (std::size_t i = 0; i < args.prompts.size(); ++i) {
    const auto& tokens = args.prompts[i]->tokens;
    const std::uint64_t length = tokens.size() + std::uint64_t{args.max_new_tokens};
    PLEXRL_TRY(check_tokens(tokens, shape, "prompt", i));
    PLEXRL_TRY(check_length(length, shape, "prompt with max_new_tokens", i));
    size.kv_bytes += args.samples_per_prompt * length * shape.kv_bytes_per_position;
    size.work_tokens += args.samples_per_prompt * length;
  }
  return size;
}

Result<OpSize> check(const wire::LogprobsArgsT& args, const ModelShape& shape) {
  if (args.sequences.empty() || args.sequences.size() > kMaxRows || none(args.sequences))
    return error(Code::INVALID_ARGUMENT, "logprobs needs 1 to %u sequences", kMaxRows);
  OpSize size;
  for (std::size_t i = 0; i < args.sequences.size(); ++i) {
    const auto& tokens = args.sequences[i]->tokens;
    PLEXRL_TRY(check_tokens(tokens, shape, "sequence", i));
    PLEXRL_TRY(check_length(tokens.size(), shape, "sequence", i));
    size.work_tokens += tokens.size();
  }
  return size;
}

Status check_floats(const std::vector<float>& values, std::size_t count, const char* what,
                    std::size_t datum) {
  if (values.size() != count)
    return error(Code::INVALID_ARGUMENT, "datum %zu: %zu %s for %zu tokens", datum, values.size(),
                 what, count);
  const bool finite =
      std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
  if (!finite)
    return error(Code::INVALID_ARGUMENT, "datum %zu: %s are not all finite", datum, what);
  return {};
}

Status check_datum(const wire::DatumT& datum, wire::LossKind loss, const ModelShape& shape,
                   std::size_t i) {
  PLEXRL_TRY(check_tokens(datum.tokens, shape, "tokens of datum", i));
  PLEXRL_TRY(check_length(datum.tokens.size(), shape, "datum", i));
  PLEXRL_TRY(check_tokens(datum.target_tokens, shape, "targets of datum", i));
  const std::size_t count = datum.tokens.size();
  if (datum.target_tokens.size() != count)
    return error(Code::INVALID_ARGUMENT, "datum %zu: %zu targets for %zu tokens", i,
                 datum.target_tokens.size(), count);
  if (loss == wire::LossKind::CrossEntropy) return check_floats(datum.weights, count, "weights", i);
  PLEXRL_TRY(check_floats(datum.logprobs, count, "logprobs", i));
  return check_floats(datum.advantages, count, "advantages", i);
}

Result<OpSize> check(const wire::ForwardBackwardArgsT& args, const ModelShape& shape) {
  if (args.data.empty() || args.data.size() > kMaxRows || none(args.data))
    return error(Code::INVALID_ARGUMENT, "forward_backward needs 1 to %u data", kMaxRows);
  if (args.loss > wire::LossKind::MAX)
    return error(Code::UNSUPPORTED, "loss %d is not known here", static_cast<int>(args.loss));
  if (!(args.clip_low >= 0.0F) || !(args.clip_high >= args.clip_low) ||
      !std::isfinite(args.clip_high))
    return error(Code::INVALID_ARGUMENT, "clip_low %g, clip_high %g: 0 <= low <= high is needed",
                 double{args.clip_low}, double{args.clip_high});
  if (!(args.beta >= 0.0F) || !std::isfinite(args.beta))
    return error(Code::INVALID_ARGUMENT, "beta %g must be finite, 0 or more", double{args.beta});
  OpSize size;
  for (std::size_t i = 0; i < args.data.size(); ++i) {
    PLEXRL_TRY(check_datum(*args.data[i], args.loss, shape, i));
    size.work_tokens += args.data[i]->tokens.size();
  }
  return size;
}

Result<OpSize> check(const wire::OptimStepArgsT& a) {
  const auto beta_ok = [](double beta) { return beta >= 0 && beta < 1; };
  if (!std::isfinite(a.learning_rate) || a.learning_rate < 0)
    return error(Code::INVALID_ARGUMENT, "learning_rate %g must be 0 or more", a.learning_rate);
  if (!beta_ok(a.beta1) || !beta_ok(a.beta2))
    return error(Code::INVALID_ARGUMENT, "beta1 %g, beta2 %g must be in [0, 1)", a.beta1, a.beta2);
  if (!(a.eps > 0) || !std::isfinite(a.eps))
    return error(Code::INVALID_ARGUMENT, "eps %g must be above 0", a.eps);
  if (!(a.weight_decay >= 0) || !(a.grad_clip_norm >= 0) || !std::isfinite(a.weight_decay))
    return error(Code::INVALID_ARGUMENT, "weight_decay %g, grad_clip_norm %g must be 0 or more",
                 a.weight_decay, a.grad_clip_norm);
  return OpSize{0, 1};
}

Status check_file(wire::SaveTarget target, const std::string& name, bool has_fd) {
  if (target > wire::SaveTarget::MAX)
    return error(Code::UNSUPPORTED, "target %d is not known here", static_cast<int>(target));
  if (target == wire::SaveTarget::Store && !valid_name(name))
    return error(Code::INVALID_ARGUMENT, "name '%s': 1 to 64 of A-Z a-z 0-9 . _ - are possible",
                 name.substr(0, 80).c_str());
  if ((target == wire::SaveTarget::ClientFd) != has_fd)
    return error(Code::INVALID_ARGUMENT, has_fd ? "an fd came with an op that takes none"
                                                : "the op needs a file descriptor and none came");
  return {};
}

Result<OpSize> check(const wire::SaveArgsT& args, bool has_fd) {
  PLEXRL_TRY(check_file(args.target, args.name, has_fd));
  if (args.format > wire::FileFormat::MAX)
    return error(Code::UNSUPPORTED, "format %d is not known here", static_cast<int>(args.format));
  if (args.target == wire::SaveTarget::Store && args.format != wire::FileFormat::Checkpoint)
    return error(Code::UNSUPPORTED, "the store takes checkpoints; save weights to a file of yours");
  return OpSize{0, 1};
}

Result<OpSize> check(const wire::LoadArgsT& args, bool has_fd) {
  if (args.target == wire::SaveTarget::Sampler)
    return error(Code::INVALID_ARGUMENT, "sampler weights cannot be loaded; load a checkpoint");
  PLEXRL_TRY(check_file(args.target, args.name, has_fd));
  return OpSize{0, 1};
}

Status check_stream(const wire::SubmitOpT& submit, const Model& model) {
  const bool training = is_training(submit.args.type);
  if (training && submit.seq == 0)
    return error(Code::INVALID_ARGUMENT, "training ops are numbered from 1; seq is 0");
  if (!training && submit.seq != 0)
    return error(Code::INVALID_ARGUMENT, "sampling ops have no seq; it is %llu",
                 static_cast<unsigned long long>(submit.seq));
  if (training && model.mode == wire::TrainMode::None)
    return error(Code::PERMISSION, "model '%s' is for sampling only (mode none)",
                 model.name.c_str());
  return {};
}

}  // namespace

bool is_training(wire::OpArgs kind) noexcept {
  return kind == wire::OpArgs::ForwardBackwardArgs || kind == wire::OpArgs::OptimStepArgs ||
         kind == wire::OpArgs::SaveArgs || kind == wire::OpArgs::LoadArgs;
}

std::uint64_t named_version(const wire::OpArgsUnion& args) noexcept {
  if (const auto* generate = args.AsGenerateArgs()) return generate->version;
  if (const auto* logprobs = args.AsLogprobsArgs()) return logprobs->version;
  return 0;
}

bool valid_name(std::string_view name) noexcept {
  const auto good = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= 64 && name != "." && name != ".." &&
         std::all_of(name.begin(), name.end(), good);
}

Result<OpSize> check_op(const wire::SubmitOpT& submit, const Model& model, bool has_fd) {
  if (submit.args.value == nullptr)
    return error(Code::UNSUPPORTED, "the op is of a kind that this plexrld does not know");
  PLEXRL_TRY(check_stream(submit, model));
  const bool file =
      submit.args.type == wire::OpArgs::SaveArgs || submit.args.type == wire::OpArgs::LoadArgs;
  if (has_fd && !file)
    return error(Code::INVALID_ARGUMENT, "an fd came with an op that takes none");
  switch (submit.args.type) {
    case wire::OpArgs::GenerateArgs:
      return check(*submit.args.AsGenerateArgs(), model.shape);
    case wire::OpArgs::LogprobsArgs:
      return check(*submit.args.AsLogprobsArgs(), model.shape);
    case wire::OpArgs::ForwardBackwardArgs:
      return check(*submit.args.AsForwardBackwardArgs(), model.shape);
    case wire::OpArgs::OptimStepArgs:
      return check(*submit.args.AsOptimStepArgs());
    case wire::OpArgs::SaveArgs:
      return check(*submit.args.AsSaveArgs(), has_fd);
    case wire::OpArgs::LoadArgs:
      return check(*submit.args.AsLoadArgs(), has_fd);
    case wire::OpArgs::NONE:
      break;
  }
  return error(Code::UNSUPPORTED, "the op is of a kind that this plexrld does not know");
}

}  // namespace plexrl::runtime
