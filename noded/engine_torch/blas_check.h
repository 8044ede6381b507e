// SPDX-License-Identifier: Apache-2.0
// Which BLAS did the dynamic linker give us? LibTorch takes any libblas.so.3, and the reference one
// is 5 to 14 times slower; OpenBLAS with its own threads spins against OpenMP's.
#pragma once

#include "base/status.h"

namespace plexrl::worker {

// Ok with OpenBLAS built for OpenMP; else UNSUPPORTED with what is loaded and what to install.
[[nodiscard]] Status check_blas();

}  // namespace plexrl::worker
