// SPDX-License-Identifier: Apache-2.0
// SimJob: the control loop of one job, seen from outside: it submits ops and waits.
#pragma once

#include <cstdint>
#include <memory>

#include "core/types.h"

namespace plexrl::sim {

// What a job may ask for. `side` is the place of the role in roles_of(): rollouts first. `token`
// comes back to the job.
class JobHost {
 public:
  virtual ~JobHost() = default;
  virtual void submit(std::uint64_t job, std::size_t side, core::OpKind kind, Duration time,
                      std::uint64_t kv_bytes, std::uint64_t token) = 0;
  virtual void wait(std::uint64_t job, Duration time, std::uint64_t token) = 0;
};

class SimJob {
 public:
  virtual ~SimJob() = default;
  virtual void start() = 0;
  virtual void op_finished(std::uint64_t token) = 0;
  virtual void waited(std::uint64_t token) = 0;
  [[nodiscard]] virtual bool done() const = 0;  // no op and no wait is open then
};

}  // namespace plexrl::sim
