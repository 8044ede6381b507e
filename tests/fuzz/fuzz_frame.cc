// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A copy, aligned as the payload of a frame is.
  const std::vector<std::uint8_t> bytes(data, data + size);
  plexrl::fuzz::fuzz_frame(bytes);
  return 0;
}
