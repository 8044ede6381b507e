// SPDX-License-Identifier: Apache-2.0
// CudaStub: control of libcuda_stub.so, a CUDA driver over host memory for tests. It knows what a
// driver call may do and refuses the rest, runs copies only when they are waited for, and counts
// what is alive. The library is one per process; reset() between tests.
//
// Programs that cannot call these functions set environment variables before they start:
//   PLEXRL_CUDA_STUB_FAIL=cuMemMap:3:2   the third call of it from now returns error 2
//   PLEXRL_CUDA_STUB_DEVICES=0           a driver without devices
#pragma once

#include <string>

namespace plexrl::device {

class CudaStub {
 public:
  explicit CudaStub(const std::string& library);
  ~CudaStub();
  CudaStub(const CudaStub&) = delete;
  CudaStub& operator=(const CudaStub&) = delete;

  // Forgets everything. Nothing of the stub may be in use.
  void reset() const { reset_(); }
  // The nth call (1 = the next) of `function` from now on returns `code` and does nothing else.
  void fail(const char* function, long nth, int code) const { fail_(function, nth, code); }
  // Settings until the next reset: devices, vmm, rdma (attribute), rdma_works, total_bytes,
  // lag_calls (so many calls of cuMemGetInfo pass before released memory is free), polls (the nth
  // cuEventQuery from now finds its work done; 0: none does).
  void set(const char* key, long value) const { set_(key, value); }
  // handles, reservations, mappings, registrations, streams, events, contexts, used_bytes, copies
  // (done), violations (what a driver would punish by undefined behaviour), pushed (contexts of
  // this thread).
  [[nodiscard]] long count(const char* what) const { return count_(what); }
  // Names of the calls since the reset, one a line.
  [[nodiscard]] std::string calls() const { return calls_(); }
  [[nodiscard]] long called(const std::string& function) const;
  // Everything that has to be given back is.
  [[nodiscard]] bool clean() const;

 private:
  void* library_;
  void (*reset_)();
  void (*fail_)(const char*, long, int);
  void (*set_)(const char*, long);
  long (*count_)(const char*);
  const char* (*calls_)();
};

}  // namespace plexrl::device
