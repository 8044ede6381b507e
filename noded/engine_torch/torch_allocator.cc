// SPDX-License-Identifier: Apache-2.0
// The activation arena as LibTorch's CPU allocator.
#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <torch/version.h>

#include "engine_torch/activation_arena.h"
#include "engine_torch/compute_threads.h"

namespace plexrl::model {
namespace {

void release_block(void* block) { ActivationArena::installed()->release(block); }

c10::DataPtr allocate_block(std::size_t bytes) {
  void* block = ActivationArena::installed()->allocate(bytes);
  // LibTorch reports a lack of memory by exceptions; op runs turn this one into NO_CAPACITY.
  if (block == nullptr && bytes > 0) throw std::bad_alloc();
  return {block, block, &release_block, c10::Device(c10::DeviceType::CPU)};
}

class TorchAllocator final : public c10::Allocator {
 public:
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
  c10::DataPtr allocate(std::size_t bytes) override { return allocate_block(bytes); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
#else
  c10::DataPtr allocate(std::size_t bytes) const override { return allocate_block(bytes); }
#endif
  c10::DeleterFnPtr raw_deleter() const override { return &release_block; }
};

}  // namespace

Status install_activation_arena(std::unique_ptr<ActivationArena> arena, int threads) {
  if (threads < 1 || threads > 1024)
    return error(Code::INVALID_ARGUMENT, "threads: %d, must be 1 to 1024", threads);
  ActivationArena::set_installed(std::move(arena));
  static TorchAllocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/100);
  set_compute_threads(threads);
  apply_compute_threads();
  try {
    at::set_num_threads(threads);
    at::set_num_interop_threads(1);
  } catch (const std::exception& e) {  // they were fixed by earlier work in this process
    return error(Code::INTERNAL, "LibTorch's threads: %s", e.what());
  }
  return {};
}

}  // namespace plexrl::model
