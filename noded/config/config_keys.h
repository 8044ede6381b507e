// SPDX-License-Identifier: Apache-2.0
// The one table of keys of plexrl.yaml. Parser, `plexrl config dump` and the tables of
// plexrl.yaml(5) are made from it; the defaults are those of the structures in site_config.h.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "config/site_config.h"

namespace plexrl::config {

// What a value must look like.
enum class Form : std::uint8_t {
  kName,     // [A-Za-z0-9._-], at most 64: names that travel in a grant
  kUser,     // a user or group name of the system
  kPath,     // an absolute path without "..", at most 1024
  kHosts,    // a Slurm host list expression
  kWord,     // one of `words`
  kNumber,   // a decimal number within [min, max]
  kAddress,  // config/loopback_address.h
};

template <class Section>
struct Key {
  using Field = std::variant<std::string Section::*, std::uint32_t Section::*,
                             std::uint64_t Section::*, std::vector<std::string> Section::*>;
  const char* name;
  Field field;
  Form form;
  bool required;
  std::uint64_t min;  // kNumber
  std::uint64_t max;
  const char* words;  // kWord: "a b c"
  const char* doc;    // one sentence, plain text
};

// The keys of each section, in the order of the manual.
[[nodiscard]] std::span<const Key<SiteConfig>> site_keys();
[[nodiscard]] std::span<const Key<PoolEntry>> pool_keys();
[[nodiscard]] std::span<const Key<ModelEntry>> model_keys();
[[nodiscard]] std::span<const Key<DaemonEntry>> daemon_keys();

}  // namespace plexrl::config
