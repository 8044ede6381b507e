// SPDX-License-Identifier: Apache-2.0
// GRES requests as Slurm's job description holds them: "gres:gpu:a100:2,gres:nvme:1" (22.05),
// "gres/gpu:2" (later). Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plexrl::slurm {

// Items of a tres_per_* field, as written.
[[nodiscard]] std::vector<std::string> gres_items(std::string_view list);
// "gpu" of "gres:gpu:a100:2", in lower case.
[[nodiscard]] std::string gres_name(std::string_view item);
// gres/plexrl, gres/plexrl_mem and whatever else begins so: written by the hook only.
[[nodiscard]] bool names_plexrl(std::string_view list);
// gpu, shard or mps.
[[nodiscard]] bool names_gpu(std::string_view list);
[[nodiscard]] std::string without_gpu(std::string_view list);

}  // namespace plexrl::slurm
