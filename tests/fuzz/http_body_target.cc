// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <string_view>

#include "base/check.h"
#include "http/adapter_request.h"
#include "http/completion_request.h"
#include "targets.h"

namespace plexrl::fuzz {
namespace {

template <class Parse>
void check(Parse parse, std::string_view body) {
  std::string field;
  const auto request = parse(body, &field);
  if (request) return;
  PLEXRL_CHECK(!request.error().text().empty(), "a refusal says why");
  PLEXRL_CHECK(request.error().scope() == Scope::kRequest, "it is the request that is wrong");
}

}  // namespace

void fuzz_http_body(std::span<const std::uint8_t> bytes) {
  const std::string_view body(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  check(http::parse_completion, body);
  check(http::parse_chat, body);
  check(http::parse_tokenize, body);
  check(http::parse_detokenize, body);
  check(http::parse_load_adapter, body);
  check(http::parse_unload_adapter, body);
}

}  // namespace plexrl::fuzz
