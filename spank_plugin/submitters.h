// SPDX-License-Identifier: Apache-2.0
// Submitters: names and groups of a uid, kept for a minute, so that a burst of submissions asks the
// name service once per user. One thread.
#pragma once

#include <cerrno>
#include <map>
#include <vector>

#include "base/clock.h"
#include "slurm/rewrite.h"

namespace plexrl::job_submit {

constexpr std::size_t kMaxNameBuffer = 16U << 20;

// Calls a getXXX_r function, `int call(char* buffer, size_t size)`, with a larger buffer as long as
// the entry does not fit: the members of a group that holds a whole site need hundreds of KiB.
template <class Call>
int with_growing_buffer(std::vector<char>* buffer, Call call) {
  while (true) {
    const int failure = call(buffer->data(), buffer->size());
    if (failure != ERANGE || buffer->size() * 2 > kMaxNameBuffer) return failure;
    buffer->resize(buffer->size() * 2);
  }
}

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
