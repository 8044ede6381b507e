// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/blas_check.h"

#include <dlfcn.h>

namespace plexrl::worker {
namespace {

constexpr int kOpenMp = 2;  // openblas_get_parallel: 0 none, 1 its own threads, 2 OpenMP

const char* provider_of(const char* symbol) {
  Dl_info info{};
  void* const at = ::dlsym(RTLD_DEFAULT, symbol);
  return at != nullptr && ::dladdr(at, &info) != 0 ? info.dli_fname : "nothing";
}

}  // namespace

Status check_blas() {
  using GetParallel = int (*)();
  const auto get_parallel =
      reinterpret_cast<GetParallel>(::dlsym(RTLD_DEFAULT, "openblas_get_parallel"));
  if (get_parallel == nullptr)
    return error(Code::UNSUPPORTED,
                 "BLAS is %s, not OpenBLAS: training is up to 14 times slower; install "
                 "libopenblas0-openmp",
                 provider_of("sgemm_"));
  if (get_parallel() != kOpenMp)
    return error(Code::UNSUPPORTED,
                 "OpenBLAS (%s) has its own threads, which spin against ours; install "
                 "libopenblas0-openmp and remove libopenblas0-pthread",
                 provider_of("openblas_get_parallel"));
  return {};
}

}  // namespace plexrl::worker
