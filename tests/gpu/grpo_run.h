// SPDX-License-Identifier: Apache-2.0
// Two full-parameter models on one device, which holds one of them: each alone, then by turns.
#pragma once

#include "gpu/gpu_run.h"
#include "gpu/trainer.h"

namespace plexrl::gpu {

struct GrpoRun {
  const char* name = "";  // of the size, in rows and checks
  model::ModelConfig config;
  TrainPlan plan;
  std::size_t chunk_bytes = 0;
  model::ModelDevice device;
  int driver = -1;  // see EngineSetup
  bool reward_must_rise = false;
};

inline constexpr int kGrpoChecks = 4;

// Counts kGrpoChecks checks. Model files go below `scratch` and are removed.
void measure_grpo(GpuRun& run, const GrpoRun& what, const std::string& scratch);

}  // namespace plexrl::gpu
