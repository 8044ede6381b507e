// SPDX-License-Identifier: Apache-2.0
// Submitters: names and groups of a uid, kept for a minute, so that a burst of submissions asks the
// name service once per user. One thread.
#pragma once

#include <map>

#include "base/clock.h"
#include "base/name_buffer.h"
#include "slurm/rewrite.h"

namespace plexrl::job_submit {

class Submitters {
 public:
  // A uid without a name has an empty name and no groups.
  [[nodiscard]] const slurm::Submitter& get(std::uint32_t uid, TimePoint now);

 private:
  struct Entry {
    slurm::Submitter submitter;
    TimePoint until;
  };
  std::map<std::uint32_t, Entry> entries_;
};

}  // namespace plexrl::job_submit
