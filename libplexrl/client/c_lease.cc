// SPDX-License-Identifier: Apache-2.0
// plexrl.h: leases and regions.
#include <algorithm>

#include "client/c_api.h"

namespace plexrl::client {
namespace {

constexpr std::size_t kMaxPids = 63;  // the caller is one of the service's 64

Result<wire::LeaseAcquireT> lease_request(const plexrl_lease_options* given) {
  plexrl_lease_options options{};
  if (given != nullptr) {
    PLEXRL_ASSIGN(options, read_struct(given, "plexrl_lease_options"));
  }
  if (options.pid_count > kMaxPids)
    return error(Code::INVALID_ARGUMENT, "pid_count is %zu, the limit is %zu", options.pid_count,
                 kMaxPids);
  if (options.pid_count > 0) PLEXRL_TRY(not_null(options.pids, "pids"));
  wire::LeaseAcquireT request;
  request.device_bytes = options.device_bytes;
  request.limit_ms = static_cast<std::uint64_t>(std::max<std::int64_t>(options.limit_ms, 0));
  request.yields = options.cooperative != 0;
  request.pids.assign(options.pids, options.pids + options.pid_count);
  return request;
}

Status acquire(plexrl_session* session, const plexrl_lease_options* given, plexrl_lease** out) {
  PLEXRL_TRY(not_null(session, "session"));
  PLEXRL_TRY(not_null(out, "out"));
  PLEXRL_ASSIGN(auto request, lease_request(given));
  const SessionOptions& options = session->session->options();
  auto handle = std::make_unique<plexrl_lease>();
  PLEXRL_ASSIGN(handle->lease, Lease::acquire(options.target, std::move(request), options.timeout));
  *out = handle.release();
  return {};
}

std::optional<TimePoint> deadline_of(std::int64_t timeout_ms) {
  if (timeout_ms < 0) return std::nullopt;
  constexpr std::int64_t kMost = 1000LL * 24 * 3600 * 1000;
  return system_clock().now() + Duration{std::min(timeout_ms, kMost) * kMillisecond.ns};
}

Status should_yield(plexrl_lease* lease, int* asked, std::int64_t* within_ms) {
  PLEXRL_TRY(not_null(lease, "lease"));
  PLEXRL_TRY(not_null(asked, "asked"));
  TimePoint until;
  PLEXRL_ASSIGN(const bool yes, lease->lease->should_yield(&until));
  *asked = yes ? 1 : 0;
  if (within_ms == nullptr) return {};
  const Duration left = until - system_clock().now();
  *within_ms = yes ? std::max<std::int64_t>(left.ns / kMillisecond.ns, 0) : 0;
  return {};
}

Status explain(plexrl_lease* lease, char* text, std::size_t capacity) {
  PLEXRL_TRY(not_null(lease, "lease"));
  PLEXRL_TRY(not_null(text, "text"));
  if (capacity == 0) return error(Code::INVALID_ARGUMENT, "capacity is 0");
  PLEXRL_ASSIGN(const std::string sentence, lease->lease->explain());
  const std::size_t size = std::min(sentence.size(), capacity - 1);
  std::memcpy(text, sentence.data(), size);
  text[size] = '\0';
  return {};
}

Status create_region(plexrl_lease* lease, std::uint64_t bytes, const RegionMemoryFactory& memory,
                     plexrl_region** out) {
  PLEXRL_TRY(not_null(out, "out"));
  auto handle = std::make_unique<plexrl_region>();
  handle->lease = lease;
  PLEXRL_ASSIGN(handle->region, lease->lease->create_region(bytes, memory));
  const std::lock_guard lock(lease->regions_mutex);
  *out = lease->regions.emplace_back(std::move(handle)).get();
  return {};
}

Result<DeviceRegions*> device_of(plexrl_lease* lease, int device) {
  const std::lock_guard lock(lease->regions_mutex);
  auto& regions = lease->devices[device];
  if (regions == nullptr) {
    PLEXRL_ASSIGN(regions, DeviceRegions::open_cuda(cuda_library(), device));
  }
  return regions.get();
}

Status create_cuda_region(plexrl_lease* lease, std::uint64_t bytes, int device,
                          plexrl_region** out) {
  PLEXRL_TRY(not_null(lease, "lease"));
  PLEXRL_ASSIGN(DeviceRegions* const regions, device_of(lease, device));
  return create_region(
      lease, bytes, [&](std::uint64_t size) { return regions->make(size); }, out);
}

Status destroy_region(plexrl_region* region) {
  if (region == nullptr) return {};
  plexrl_lease* const lease = region->lease;
  const Status status = lease->lease->destroy_region(region->region);
  const std::lock_guard lock(lease->regions_mutex);
  std::erase_if(lease->regions, [&](const auto& one) { return one.get() == region; });
  return status;
}

}  // namespace
}  // namespace plexrl::client

using plexrl::client::guarded;
using plexrl::client::not_null;

extern "C" {

plexrl_status plexrl_lease_acquire(plexrl_session* session, const plexrl_lease_options* options,
                                   plexrl_lease** out, plexrl_error* err) noexcept {
  return guarded(err, [&] { return plexrl::client::acquire(session, options, out); });
}

plexrl_status plexrl_lease_wait(plexrl_lease* lease, int64_t timeout_ms,
                                plexrl_error* err) noexcept {
  return guarded(err, [&]() -> plexrl::Status {
    PLEXRL_TRY(not_null(lease, "lease"));
    return lease->lease->wait(plexrl::client::deadline_of(timeout_ms));
  });
}

plexrl_status plexrl_lease_should_yield(plexrl_lease* lease, int* asked, int64_t* within_ms,
                                        plexrl_error* err) noexcept {
  return guarded(err, [&] { return plexrl::client::should_yield(lease, asked, within_ms); });
}

int plexrl_lease_fd(plexrl_lease* lease) noexcept {
  return lease == nullptr ? -1 : lease->lease->fd();
}

plexrl_status plexrl_lease_yield(plexrl_lease* lease, plexrl_error* err) noexcept {
  return guarded(err, [&]() -> plexrl::Status {
    PLEXRL_TRY(not_null(lease, "lease"));
    return lease->lease->yield();
  });
}

plexrl_status plexrl_lease_explain(plexrl_lease* lease, char* text, size_t capacity,
                                   plexrl_error* err) noexcept {
  return guarded(err, [&] { return plexrl::client::explain(lease, text, capacity); });
}

void plexrl_lease_release(plexrl_lease* lease) noexcept {
  (void)guarded(nullptr, [&]() -> plexrl::Status {
    const std::unique_ptr<plexrl_lease> owned(lease);
    return {};
  });
}

plexrl_status plexrl_region_create(plexrl_lease* lease, uint64_t bytes, plexrl_region** out,
                                   plexrl_error* err) noexcept {
  return guarded(err, [&]() -> plexrl::Status {
    PLEXRL_TRY(not_null(lease, "lease"));
    return plexrl::client::create_region(lease, bytes, plexrl::client::make_mapped_memory, out);
  });
}

plexrl_status plexrl_region_create_cuda(plexrl_lease* lease, uint64_t bytes, int device,
                                        plexrl_region** out, plexrl_error* err) noexcept {
  return guarded(err,
                 [&] { return plexrl::client::create_cuda_region(lease, bytes, device, out); });
}

void* plexrl_region_address(plexrl_region* region) noexcept {
  return region == nullptr ? nullptr : region->region->address();
}

uint64_t plexrl_region_bytes(plexrl_region* region) noexcept {
  return region == nullptr ? 0 : region->region->bytes();
}

plexrl_status plexrl_region_destroy(plexrl_region* region, plexrl_error* err) noexcept {
  return guarded(err, [&] { return plexrl::client::destroy_region(region); });
}

}  // extern "C"
