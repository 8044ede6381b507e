// SPDX-License-Identifier: Apache-2.0
// Grant: what the job_submit hook gave a job; the only thing plexrld believes about it. Travels as
// the text of --plexrl-pool in spank_job_env (see doc/adr/0002). Text form, version first, fields
// in this order, values of [A-Za-z0-9._,-]:
//   v1:pool=NAME:share=N:mem=MIB:mode=lora|full|none:rank=N:slowdown=PERMILLE:models=A[,B...]
//   [:env=CLIENT[,CLIENT]][:name=NAME]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace plexrl::slurm {

struct Grant {
  std::string pool;
  std::uint32_t share_percent = 50;
  std::uint64_t host_memory_mib = 0;
  std::string train_mode = "lora";
  std::uint32_t lora_rank = 0;
  std::uint32_t slowdown_permille = 0;  // 0: no bound
  std::vector<std::string> models;
  std::string name;  // of the job, by which its next run is known; may be empty
  // Of kEnvClients, in their order: whose variables the tasks get. Empty: no HTTP by TCP either.
  std::vector<std::string> env = {};
  friend bool operator==(const Grant&, const Grant&) = default;
};

[[nodiscard]] std::string format_grant(const Grant& grant);
// INVALID_ARGUMENT for anything that format_grant would not write; at most 4096 bytes.
[[nodiscard]] Result<Grant> parse_grant(std::string_view text);

}  // namespace plexrl::slurm
