// SPDX-License-Identifier: Apache-2.0
#include "fakes/cuda_stub.h"

#include <dlfcn.h>

#include <algorithm>
#include <sstream>

#include "base/check.h"

namespace plexrl::device {
namespace {

template <class Function>
void find(void* library, const char* name, Function* out) {
  *out = reinterpret_cast<Function>(::dlsym(library, name));
  PLEXRL_CHECK(*out != nullptr, name);
}

}  // namespace

CudaStub::CudaStub(const std::string& library) : library_(::dlopen(library.c_str(), RTLD_NOW)) {
  PLEXRL_CHECK(library_ != nullptr, "the stub driver cannot be opened");
  find(library_, "plexrl_stub_reset", &reset_);
  find(library_, "plexrl_stub_fail", &fail_);
  find(library_, "plexrl_stub_set", &set_);
  find(library_, "plexrl_stub_count", &count_);
  find(library_, "plexrl_stub_calls", &calls_);
}

CudaStub::~CudaStub() { ::dlclose(library_); }

long CudaStub::called(const std::string& function) const {
  std::istringstream lines(calls());
  long found = 0;
  for (std::string line; std::getline(lines, line);) found += line == function ? 1 : 0;
  return found;
}

bool CudaStub::clean() const {
  constexpr const char* kAll[] = {"handles",    "reservations", "mappings", "registrations",
                                  "streams",    "events",       "contexts", "used_bytes",
                                  "violations", "pushed"};
  return std::all_of(std::begin(kAll), std::end(kAll),
                     [this](const char* what) { return count(what) == 0; });
}

}  // namespace plexrl::device
