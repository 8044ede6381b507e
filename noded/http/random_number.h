// SPDX-License-Identifier: Apache-2.0
// Numbers that nobody can guess: ids of answers, seeds that a client left open. Any thread.
#pragma once

#include <sys/random.h>

#include <cstdint>

#include "base/check.h"

namespace plexrl::http {

[[nodiscard]] inline std::uint64_t random_number() {
  std::uint64_t number = 0;
  PLEXRL_CHECK(getrandom(&number, sizeof number, 0) == sizeof number,
               "getrandom gives 8 bytes at once");
  return number;
}

}  // namespace plexrl::http
