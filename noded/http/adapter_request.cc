// SPDX-License-Identifier: Apache-2.0
#include "http/adapter_request.h"

#include "http/body_fields.h"
#include "http/model_names.h"
#include "runtime/op_check.h"

namespace plexrl::http {
namespace {

void read_adapter_name(BodyFields& fields, AdapterRequest& request) {
  fields.read("lora_name", &request.name);
  if (request.name.size() <= kMaxAdapterName && runtime::valid_name(request.name)) return;
  fields.refuse("lora_name", error(Code::INVALID_ARGUMENT,
                                   "1 to %zu of A-Z a-z 0-9 . _ - are needed", kMaxAdapterName));
}

}  // namespace

Result<AdapterRequest> parse_load_adapter(std::string_view body, std::string* field) {
  PLEXRL_ASSIGN(const Json json, parse_body(body));
  BodyFields fields(json);
  AdapterRequest request;
  read_adapter_name(fields, request);
  fields.read("lora_path", &request.path);
  fields.read("load_inplace", &request.in_place);
  if (request.path.empty()) fields.refuse("lora_path", error(Code::INVALID_ARGUMENT, "is missing"));
  *field = fields.field();
  PLEXRL_TRY(fields.status());
  return request;
}

Result<AdapterRequest> parse_unload_adapter(std::string_view body, std::string* field) {
  PLEXRL_ASSIGN(const Json json, parse_body(body));
  BodyFields fields(json);
  AdapterRequest request;
  read_adapter_name(fields, request);
  *field = fields.field();
  PLEXRL_TRY(fields.status());
  return request;
}

}  // namespace plexrl::http
