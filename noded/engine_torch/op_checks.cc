// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/op_checks.h"

#include <cmath>
#include <new>

#include "engine_torch/compute_threads.h"

namespace plexrl::model {

using wire::TrainMode;

Status check_tokens(const std::string& what, std::span<const std::int32_t> tokens,
                    std::int64_t vocab) {
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= vocab)
      return error(Code::INVALID_ARGUMENT, "%s[%zu] is %d, must be 0 to %lld", what.c_str(), i,
                   tokens[i], static_cast<long long>(vocab - 1));
  return {};
}

Status check_finite(const std::string& what, std::span<const float> values) {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i]))
      return error(Code::INVALID_ARGUMENT, "%s[%zu] is not a finite number", what.c_str(), i);
  return {};
}

Status check_version(const ModelState& state, std::uint64_t version) {
  const auto number = static_cast<unsigned long long>(version);
  if (version == 0) {
    if (state.layout->mode != TrainMode::Full) return {};
    return error(Code::NOT_FOUND,
                 "version 0: a full-parameter model keeps no copy of its base; save to the sampler "
                 "first and name that version");
  }
  if (version == state.sampler_version) return {};
  return error(Code::NOT_FOUND, "version %llu: not held; the published version is %llu", number,
               static_cast<unsigned long long>(state.sampler_version));
}

Result<bool> guarded(const char* op, const std::function<Result<bool>()>& body) {
  apply_compute_threads();
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return error(Code::NO_CAPACITY,
                 "%s: the activation arena is too small for it: send a smaller op", op);
  } catch (const std::exception& e) {
    return error(Code::INTERNAL, "%s: %s", op, e.what());
  }
}

}  // namespace plexrl::model
