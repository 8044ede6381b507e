// SPDX-License-Identifier: Apache-2.0
#include "torch_alloc/torch_alloc.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <mutex>
#include <string>

#include "client/device_regions.h"
#include "client/lease.h"

namespace plexrl::torch_alloc {
namespace {

constexpr Duration kTimeout{30 * kSecond.ns};

// What the process has: one lease, and the regions of each device.
class TorchLease {
 public:
  Result<void*> allocate(ssize_t size, int device);
  Status free(void* pointer);
  Result<bool> should_yield();
  Status yield();

 private:
  Result<client::DeviceRegions*> regions_of(int device);
  Status acquire();

  std::mutex mutex_;
  // Before the lease: regions are destroyed with it and need their device.
  std::map<int, std::unique_ptr<client::DeviceRegions>> devices_;
  std::unique_ptr<client::Lease> lease_;
  std::map<void*, client::Region*> allocations_;
};

Result<client::DeviceRegions*> TorchLease::regions_of(int device) {
  auto& regions = devices_[device];
  if (regions != nullptr) return regions.get();
  PLEXRL_ASSIGN(regions, client::DeviceRegions::open_cuda(client::cuda_library(), device));
  return regions.get();
}

Status TorchLease::acquire() {
  if (lease_ != nullptr) return {};
  const char* const socket = std::getenv("PLEXRL_SOCKET");
  const char* const token = std::getenv("PLEXRL_TOKEN");
  if (socket == nullptr || token == nullptr)
    return error(Code::INVALID_ARGUMENT,
                 "PLEXRL_SOCKET or PLEXRL_TOKEN is not set: run inside a job of a pool");
  wire::LeaseAcquireT request;
  request.yields = true;
  PLEXRL_ASSIGN(auto lease, client::Lease::acquire({socket, token, program_invocation_short_name},
                                                   std::move(request), kTimeout));
  PLEXRL_TRY(lease->wait(std::nullopt));
  lease_ = std::move(lease);
  return {};
}

Result<void*> TorchLease::allocate(ssize_t size, int device) {
  const std::lock_guard lock(mutex_);
  if (size <= 0) return static_cast<void*>(nullptr);
  // The device first: without one there is nothing to take a lease for.
  PLEXRL_ASSIGN(client::DeviceRegions* const regions, regions_of(device));
  PLEXRL_TRY(acquire());
  PLEXRL_ASSIGN(client::Region* const region,
                lease_->create_region(static_cast<std::uint64_t>(size),
                                      [&](std::uint64_t bytes) { return regions->make(bytes); }));
  allocations_[region->address()] = region;
  return region->address();
}

Status TorchLease::free(void* pointer) {
  const std::lock_guard lock(mutex_);
  const auto found = allocations_.find(pointer);
  if (pointer == nullptr) return {};
  if (found == allocations_.end())
    return error(Code::INVALID_ARGUMENT, "%p was not allocated here", pointer);
  client::Region* const region = found->second;
  allocations_.erase(found);
  return lease_->destroy_region(region);
}

Result<bool> TorchLease::should_yield() {
  const std::lock_guard lock(mutex_);
  TimePoint until;
  if (lease_ == nullptr) return false;
  return lease_->should_yield(&until);
}

Status TorchLease::yield() {
  const std::lock_guard lock(mutex_);
  if (lease_ == nullptr) return {};
  PLEXRL_TRY(lease_->yield());
  return lease_->wait(std::nullopt);
}

// Never destroyed: torch frees memory while the process ends, in any order.
TorchLease& process() {
  static auto* const lease = new TorchLease;  // NOLINT(cppcoreguidelines-owning-memory)
  return *lease;
}

std::string& last_error() {
  thread_local std::string text;
  return text;
}

void report(const char* what, const Status& status) {
  last_error() = std::string(what) + ": " + status.to_string();
  std::fprintf(stderr, "plexrl_torch_alloc: %s\n", last_error().c_str());
}

// The edge: nothing is thrown into torch.
template <class Call>
Status guarded(Call call) noexcept {
  try {
    return call();
  } catch (const std::exception& failure) {
    return error(Code::INTERNAL, "%s", failure.what());
  } catch (...) {
    return error(Code::INTERNAL, "unknown exception");
  }
}

}  // namespace
}  // namespace plexrl::torch_alloc

using plexrl::torch_alloc::guarded;
using plexrl::torch_alloc::process;
using plexrl::torch_alloc::report;

extern "C" {

void* plexrl_torch_alloc(ssize_t size, int device, void*) noexcept {
  void* memory = nullptr;
  const plexrl::Status status = guarded([&]() -> plexrl::Status {
    PLEXRL_ASSIGN(memory, process().allocate(size, device));
    return {};
  });
  if (!status.ok()) report("allocate", status);
  return memory;
}

void plexrl_torch_free(void* ptr, ssize_t, int, void*) noexcept {
  const plexrl::Status status = guarded([&] { return process().free(ptr); });
  if (!status.ok()) report("free", status);
}

int plexrl_torch_should_yield() noexcept {
  bool asked = false;
  const plexrl::Status status = guarded([&]() -> plexrl::Status {
    PLEXRL_ASSIGN(asked, process().should_yield());
    return {};
  });
  if (!status.ok()) report("should_yield", status);
  return asked ? 1 : 0;
}

int plexrl_torch_yield() noexcept {
  const plexrl::Status status = guarded([] { return process().yield(); });
  if (!status.ok()) report("yield", status);
  return status.ok() ? 0 : 1;
}

const char* plexrl_torch_error() noexcept { return plexrl::torch_alloc::last_error().c_str(); }
}
