// SPDX-License-Identifier: Apache-2.0
// event_file DIRECTORY new|resumed: forty steps from 1, or from 31; read back by
// test_tensorboard.py.
#include "cli/train/event_file.h"

#include <cmath>
#include <cstdio>

namespace {

plexrl::Status run(const char* directory, bool resumed, std::uint64_t first, std::uint64_t last) {
  PLEXRL_ASSIGN(plexrl::cli::EventFile file, plexrl::cli::EventFile::create(directory, resumed));
  for (std::uint64_t step = first; step <= last; ++step) {
    const double reward = std::sqrt(static_cast<double>(step)) + (resumed ? 100.0 : 0.0);
    PLEXRL_TRY(file.write(step, 1.7e9 + static_cast<double>(step),
                          {{"grpo/reward", reward}, {"grpo/loss", -reward}}));
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const bool resumed = argv[2][0] == 'r';
  const std::uint64_t first = resumed ? 31 : 1;
  const plexrl::Status status = run(argv[1], resumed, first, first + 39);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status.ok() ? 0 : 1;
}
