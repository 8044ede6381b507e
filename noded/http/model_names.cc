// SPDX-License-Identifier: Apache-2.0
#include "http/model_names.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace plexrl::http {
namespace {

constexpr std::string_view kSamplerPrefix = "base:";
constexpr std::string_view kAdapterPrefix = "l:";

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool has_model(runtime::NodeRuntime& node, const runtime::Tenant& tenant, const std::string& name) {
  const runtime::Model* const model = node.models().find(tenant.id, name);
  return model != nullptr && !model->removing;
}

}  // namespace

std::string sampler_name(const std::string& base) { return std::string(kSamplerPrefix) + base; }

bool is_sampler_name(const std::string& name) { return name.starts_with(kSamplerPrefix); }

std::string adapter_model(const std::string& adapter) {
  return std::string(kAdapterPrefix) + adapter;
}

std::string adapter_of(const std::string& model) {
  return model.starts_with(kAdapterPrefix) ? model.substr(kAdapterPrefix.size()) : "";
}

Result<NamedModel> find_named(runtime::NodeRuntime& node, const runtime::Tenant& tenant,
                              const std::string& name) {
  const auto& bases = tenant.grant.models;
  const std::string wanted = name.empty() && !bases.empty() ? bases.front() : name;
  if (has_model(node, tenant, wanted))
    return NamedModel{wanted, "", 0, true, !adapter_of(wanted).empty()};
  if (has_model(node, tenant, adapter_model(wanted)))
    return NamedModel{adapter_model(wanted), "", 0, true, true};
  if (std::find(bases.begin(), bases.end(), wanted) != bases.end())
    return NamedModel{sampler_name(wanted), wanted, 0, false, false};
  const std::size_t at = wanted.rfind('@');
  if (at != std::string::npos) {
    const auto version = number(std::string_view(wanted).substr(at + 1));
    const std::string head = wanted.substr(0, at);
    if (version && has_model(node, tenant, head))
      return NamedModel{head, "", *version, false, false};
  }
  return error(Code::NOT_FOUND, "The model `%s` does not exist.", wanted.substr(0, 80).c_str());
}

}  // namespace plexrl::http
