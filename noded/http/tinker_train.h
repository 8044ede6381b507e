// SPDX-License-Identifier: Apache-2.0
// Tinker's forward_backward, forward and optim_step as ops, and their results as Tinker's answers.
// forward_backward is a protobuf message; SDKs before 0.25 send JSON, which is read as well. The
// work is linear in the body. Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "http/body_fields.h"
#include "ops_generated.h"

namespace plexrl::http {

// A call of a model's training stream. Once its model and number are known a mistake uses the
// number up, as the client's next call has the next one: it is the op's `refusal`.
struct TrainRequest {
  std::string model_id;
  std::uint64_t seq = 0;  // from 1
  wire::OpArgsUnion args;
  Status refusal;
};

// INVALID_ARGUMENT, TOO_LARGE: there is no number that could be used up; `field` as in
// completion_request.h.
[[nodiscard]] Result<TrainRequest> parse_forward_backward(std::string_view message,
                                                          std::string* field);
[[nodiscard]] Result<TrainRequest> parse_json_forward_backward(std::string_view body,
                                                               std::string* field);
[[nodiscard]] Result<TrainRequest> parse_json_forward(std::string_view body, std::string* field);
[[nodiscard]] Result<TrainRequest> parse_optim_step(std::string_view body, std::string* field);
// model_id and seq_id of a JSON body; what every call of a training stream has.
void read_stream_fields(BodyFields& fields, TrainRequest& request);

// ForwardBackwardOutput, and the same as JSON.
[[nodiscard]] std::string forward_backward_message(const wire::ForwardBackwardResultT& result);
[[nodiscard]] std::string forward_backward_json(const wire::ForwardBackwardResultT& result);
[[nodiscard]] std::string optim_step_json(const wire::OptimStepResultT& result);

// As text; bytes of a client that are no UTF-8 are replaced.
[[nodiscard]] std::string dump_json(const Json& document);

}  // namespace plexrl::http
