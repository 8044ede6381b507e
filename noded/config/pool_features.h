// SPDX-License-Identifier: Apache-2.0
// Node features of a pool, by which Slurm keeps jobs of like phases apart: each node has one for
// each kind of job, active while no job of that kind runs there. `plexrl config slurm` writes them,
// `plexrl node-check` keeps them true, the job_submit hook makes jobs prefer them. Pure functions.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace plexrl::config {

// What a job is mostly busy with.
enum class JobKind { kRollout, kTraining };
inline constexpr std::array kJobKinds{JobKind::kRollout, JobKind::kTraining};

// "rollout", "training".
[[nodiscard]] const char* job_kind_name(JobKind kind);
// Of a node that a job of this kind is welcome on. Named by pool, so that a node that has it is one
// of the pool's.
[[nodiscard]] std::string pool_feature(std::string_view pool, JobKind kind);
// What the hook notes in a job's AdminComment, for node-check.
[[nodiscard]] std::string job_kind_mark(JobKind kind);

}  // namespace plexrl::config
