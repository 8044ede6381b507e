// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <string_view>

#include "base/check.h"
#include "http/tinker_ids.h"
#include "http/tinker_sample.h"
#include "http/tinker_train.h"
#include "targets.h"

namespace plexrl::fuzz {
namespace {

template <class Request>
void check(const Result<Request>& request) {
  if (request) return;
  PLEXRL_CHECK(!request.error().text().empty(), "a refusal says why");
  PLEXRL_CHECK(request.error().scope() == Scope::kRequest, "it is the request that is wrong");
}

// A mistake in the contents has its number, and says what it is.
void check_call(const Result<http::TrainRequest>& request) {
  check(request);
  if (!request) return;
  PLEXRL_CHECK(request->seq > 0 && !request->model_id.empty(), "a call has a model and a number");
  PLEXRL_CHECK(request->args.value != nullptr, "a call is of some kind");
  PLEXRL_CHECK(request->refusal.ok() || request->refusal.scope() == Scope::kRequest,
               "it is the request that is wrong");
}

}  // namespace

void fuzz_tinker(std::span<const std::uint8_t> bytes) {
  const std::string_view body(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::string field;
  check_call(http::parse_forward_backward(body, &field));
  check_call(http::parse_json_forward_backward(body, &field));
  check_call(http::parse_json_forward(body, &field));
  check_call(http::parse_optim_step(body, &field));
  check(http::parse_sample(body, &field));
  if (const auto promise = http::parse_promise(body))
    PLEXRL_CHECK(http::format_promise(*promise) == body, "a promise has one name");
  if (const auto checkpoint = http::parse_checkpoint_path(body)) {
    PLEXRL_CHECK(http::checkpoint_path(*checkpoint) == body, "a checkpoint has one path");
    const std::string file = http::checkpoint_file(*checkpoint);
    PLEXRL_CHECK(file.size() <= 62 && http::checkpoint_of_file(file).has_value(),
                 "a path and a file name each other");
  }
}

}  // namespace plexrl::fuzz
