// SPDX-License-Identifier: Apache-2.0
#include "targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  plexrl::fuzz::fuzz_tinker({data, size});
  return 0;
}
