// SPDX-License-Identifier: Apache-2.0
// libplexrl_torch_alloc.so: an allocator for torch.cuda.memory.CUDAPluggableAllocator whose memory
// leaves the device when the job yields and comes back at the same addresses, with every bit.
//
//   alloc = torch.cuda.memory.CUDAPluggableAllocator(
//       "libplexrl_torch_alloc.so", "plexrl_torch_alloc", "plexrl_torch_free")
//   pool = torch.cuda.MemPool(alloc.allocator())     # caches, so that calls here are few
//   plexrl = ctypes.CDLL("libplexrl_torch_alloc.so")
//   ...
//   if plexrl.plexrl_torch_should_yield():
//       torch.cuda.synchronize(); plexrl.plexrl_torch_yield()   # returns when it is our turn again
//
// The first allocation connects with PLEXRL_SOCKET and PLEXRL_TOKEN and waits for a lease of the
// whole device group. Each allocation is a region, rounded up to 2 MiB of device memory and charged
// to the job's host memory. The library loads on a machine without CUDA; allocating there gives
// nullptr and one line on standard error. Any thread; not in a forked child.
#pragma once

#include <sys/types.h>

#define PLEXRL_TORCH_API __attribute__((visibility("default")))

extern "C" {

// `stream` is not used: memory is not handed from stream to stream here. nullptr: no memory, no
// device or no lease; plexrl_torch_error says which.
PLEXRL_TORCH_API void* plexrl_torch_alloc(ssize_t size, int device, void* stream) noexcept;
// `ptr` of plexrl_torch_alloc, or nullptr.
PLEXRL_TORCH_API void plexrl_torch_free(void* ptr, ssize_t size, int device, void* stream) noexcept;
// 1: the job is asked to make way; 0: not, or it has no lease.
PLEXRL_TORCH_API int plexrl_torch_should_yield() noexcept;
// Parks all allocations, gives the device up, waits for it and brings them back. 0: done. 1:
// failed; after LOST the contents are as of the last yield.
PLEXRL_TORCH_API int plexrl_torch_yield() noexcept;
// What the last call of this thread that failed says; "" when none did. Valid until the next one.
PLEXRL_TORCH_API const char* plexrl_torch_error() noexcept;
}
