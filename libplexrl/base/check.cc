// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace plexrl {

void check_failed(const char* condition, const char* text, const char* file, int line) noexcept {
  std::fprintf(stderr, "plexrl: broken invariant: %s: %s (%s:%d)\n", condition, text, file, line);
  std::abort();
}

}  // namespace plexrl
