// SPDX-License-Identifier: Apache-2.0
#include "wire/failure.h"

namespace plexrl::wire {

FailureT to_failure(const Status& status, std::uint32_t retry_after_ms) {
  FailureT failure;
  failure.code = static_cast<std::int32_t>(status.code());
  failure.text = status.text().substr(0, kMaxFailureText);
  failure.retry_after_ms = retry_after_ms;
  return failure;
}

Status from_failure(const FailureT& failure) {
  const Code code = code_from_wire(failure.code);
  if (code == Code::OK) return error(Code::PROTOCOL, "the peer sent a failure that says OK");
  return {code, failure.text.substr(0, kMaxFailureText)};
}

}  // namespace plexrl::wire
