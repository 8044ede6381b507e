// SPDX-License-Identifier: Apache-2.0
// A CUDA driver over host memory: see cuda_stub.h. Address space is PROT_NONE until memory is
// mapped there and access is set, so a use after unmap faults. Checks are at least as strict as a
// driver's.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "device/cuda_api.h"

namespace {

using namespace plexrl::device::cuda;

constexpr std::size_t kGranularity = std::size_t{2} << 20;
constexpr std::size_t kHostPage = 4096;

struct Memory {
  int fd = -1;
  std::size_t bytes = 0;
  bool owned = true;  // not released yet
  std::size_t maps = 0;
};
struct Mapping {
  std::size_t bytes = 0;
  MemHandle handle = 0;
  bool access = false;
};
struct Work {
  Stream stream;
  DevicePtr at;  // the device memory that it touches
  std::size_t bytes;
  std::function<void()> run;
};

struct Driver {
  std::map<std::string, long> settings = {
      {"devices", 1},   {"vmm", 1},  {"rdma", 1}, {"rdma_works", 1}, {"total_bytes", 256L << 20},
      {"lag_calls", 0}, {"polls", 0}};
  std::map<std::string, std::pair<long, int>> faults;
  std::string calls;
  std::map<DevicePtr, std::size_t> reservations;
  std::map<MemHandle, Memory> memories;
  std::map<DevicePtr, Mapping> mappings;
  std::map<const char*, std::size_t> registrations;
  std::set<Stream> streams;
  std::map<Event, Stream> events;
  std::vector<Work> pending;
  long contexts = 0, violations = 0, copies = 0, lag = 0;
  std::size_t lagging_bytes = 0;
  std::uintptr_t next = 1;
  Result sticky = kSuccess;
  bool initialized = false;
};

std::mutex g_mutex;
Driver g_driver;
thread_local std::vector<Context> t_contexts;
const Context kContext = reinterpret_cast<Context>(std::uintptr_t{0xc0de});

bool is_sticky_code(Result code) {
  return code == kUnknown || (code >= 700 && code < 720 && code != kHostMemoryAlreadyRegistered &&
                              code != kHostMemoryNotRegistered);
}

void read_environment() {
  if (const char* devices = std::getenv("PLEXRL_CUDA_STUB_DEVICES"))
    g_driver.settings["devices"] = std::atol(devices);
  const char* fail = std::getenv("PLEXRL_CUDA_STUB_FAIL");
  if (fail == nullptr) return;
  const std::string text = fail;
  const auto first = text.find(':');
  const auto second = text.find(':', first + 1);
  if (first == std::string::npos || second == std::string::npos) return;
  g_driver.faults[text.substr(0, first)] = {std::atol(text.c_str() + first + 1),
                                            std::atoi(text.c_str() + second + 1)};
}

// What every call does first; kSuccess: go on. The lock is held by the caller.
Result enter(const char* name, bool needs_context = true) {
  g_driver.calls += name;
  g_driver.calls += '\n';
  if (g_driver.sticky != kSuccess) return g_driver.sticky;
  const auto fault = g_driver.faults.find(name);
  if (fault != g_driver.faults.end() && --fault->second.first == 0) {
    const Result code = fault->second.second;
    g_driver.faults.erase(fault);
    if (is_sticky_code(code)) g_driver.sticky = code;
    return code;
  }
  if (!g_driver.initialized) return kNotInitialized;
  if (needs_context && t_contexts.empty()) return kInvalidContext;
  return kSuccess;
}

Result violation() {
  ++g_driver.violations;
  return kInvalidValue;
}

std::size_t used_bytes() {
  std::size_t used = 0;
  for (const auto& [handle, memory] : g_driver.memories) used += memory.bytes;
  return used;
}

void drop_when_unused(MemHandle handle) {
  Memory& memory = g_driver.memories.at(handle);
  if (memory.owned || memory.maps != 0) return;
  if (g_driver.settings["lag_calls"] > 0) {
    g_driver.lag = g_driver.settings["lag_calls"];
    g_driver.lagging_bytes += memory.bytes;
  }
  ::close(memory.fd);
  g_driver.memories.erase(handle);
}

void run_pending(Stream stream) {
  for (auto& work : g_driver.pending)
    if (work.stream == stream || stream == nullptr) work.run();
  std::erase_if(g_driver.pending,
                [&](const Work& work) { return work.stream == stream || stream == nullptr; });
}

// All of the range is mapped with access.
bool reachable(DevicePtr at, std::size_t bytes) {
  const DevicePtr end = at + bytes;
  while (at < end) {
    auto next = g_driver.mappings.upper_bound(at);
    if (next == g_driver.mappings.begin()) return false;
    --next;
    if (!next->second.access || at >= next->first + next->second.bytes) return false;
    at = next->first + next->second.bytes;
  }
  return true;
}

// A range that begins in a registration and goes past it, or runs into one, is refused.
bool crosses_registration(const char* at, std::size_t bytes) {
  for (const auto& [start, size] : g_driver.registrations) {
    const bool begins = at >= start && at < start + size;
    const bool reaches = at < start && at + bytes > start;
    if (reaches || (begins && at + bytes > start + size)) return true;
  }
  return false;
}

Result issue(Stream stream, DevicePtr at, std::size_t bytes, std::function<void()> run) {
  if (!g_driver.streams.contains(stream)) return violation();
  g_driver.pending.push_back({stream, at, bytes, std::move(run)});
  return kSuccess;
}

Result copy(DevicePtr device, const void* host, std::size_t bytes, Stream stream,
            std::function<void()> run) {
  if (!reachable(device, bytes) || crosses_registration(static_cast<const char*>(host), bytes))
    return violation();
  return issue(stream, device, bytes, [run = std::move(run)] {
    run();
    ++g_driver.copies;
  });
}

char* host_of(DevicePtr at) { return reinterpret_cast<char*>(at); }

bool inside_reservation(DevicePtr at, std::size_t bytes) {
  auto next = g_driver.reservations.upper_bound(at);
  if (next == g_driver.reservations.begin()) return false;
  --next;
  return at + bytes <= next->first + next->second;
}

void protect_nothing(DevicePtr at, std::size_t bytes) {
  ::mmap(host_of(at), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
         0);
}

}  // namespace

#define STUB_ENTER(...)                 \
  const std::scoped_lock lock(g_mutex); \
  if (const Result first = enter(__VA_ARGS__); first != kSuccess) return first

extern "C" {

Result cuInit(unsigned flags) {
  const std::scoped_lock lock(g_mutex);
  if (!g_driver.initialized) read_environment();
  g_driver.initialized = true;
  if (const Result first = enter("cuInit", false); first != kSuccess) return first;
  if (flags != 0) return kInvalidValue;
  return g_driver.settings["devices"] == 0 ? kNoDevice : kSuccess;
}

Result cuDriverGetVersion(int* version) {
  STUB_ENTER("cuDriverGetVersion", false);
  *version = 13000;
  return kSuccess;
}

Result cuGetErrorName(Result code, const char** name) {
  static const std::map<Result, const char*> kNames = {
      {kInvalidValue, "CUDA_ERROR_INVALID_VALUE"},
      {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
      {kNoDevice, "CUDA_ERROR_NO_DEVICE"},
      {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT"},
      {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {kNotSupported, "CUDA_ERROR_NOT_SUPPORTED"},
      {kNotPermitted, "CUDA_ERROR_NOT_PERMITTED"},
      {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED"},
      {kHostMemoryAlreadyRegistered, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"}};
  const auto found = kNames.find(code);
  if (found == kNames.end()) return kInvalidValue;
  *name = found->second;
  return kSuccess;
}

Result cuGetErrorString(Result /*code*/, const char** text) {
  *text = "said by the stub driver";
  return kSuccess;
}

Result cuDeviceGetCount(int* count) {
  STUB_ENTER("cuDeviceGetCount", false);
  *count = static_cast<int>(g_driver.settings["devices"]);
  return kSuccess;
}

Result cuDeviceGet(Device* device, int ordinal) {
  STUB_ENTER("cuDeviceGet", false);
  if (ordinal < 0 || ordinal >= g_driver.settings["devices"]) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}

Result cuDeviceGetName(char* name, int size, Device /*device*/) {
  STUB_ENTER("cuDeviceGetName", false);
  std::strncpy(name, "stub device", static_cast<std::size_t>(size));
  return kSuccess;
}

Result cuDeviceGetAttribute(int* value, int attribute, Device /*device*/) {
  STUB_ENTER("cuDeviceGetAttribute", false);
  *value = static_cast<int>(attribute == kAttributeVirtualMemory ? g_driver.settings["vmm"]
                            : attribute == kAttributeRdmaWithVmm ? g_driver.settings["rdma"]
                                                                 : 0);
  return kSuccess;
}

Result cuDevicePrimaryCtxRetain(Context* context, Device /*device*/) {
  STUB_ENTER("cuDevicePrimaryCtxRetain", false);
  ++g_driver.contexts;
  *context = kContext;
  return kSuccess;
}

Result cuDevicePrimaryCtxRelease_v2(Device /*device*/) {
  STUB_ENTER("cuDevicePrimaryCtxRelease", false);
  return --g_driver.contexts < 0 ? violation() : kSuccess;
}

Result cuCtxPushCurrent_v2(Context context) {
  const std::scoped_lock lock(g_mutex);
  if (g_driver.sticky != kSuccess) return g_driver.sticky;
  if (context != kContext || g_driver.contexts == 0) return violation();
  t_contexts.push_back(context);
  return kSuccess;
}

Result cuCtxPopCurrent_v2(Context* context) {
  const std::scoped_lock lock(g_mutex);
  if (t_contexts.empty()) return violation();
  *context = t_contexts.back();
  t_contexts.pop_back();
  return kSuccess;
}

Result cuCtxSynchronize() {
  STUB_ENTER("cuCtxSynchronize");
  run_pending(nullptr);
  return kSuccess;
}

Result cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  STUB_ENTER("cuMemGetInfo");
  if (g_driver.lag > 0 && --g_driver.lag == 0) g_driver.lagging_bytes = 0;
  *total = static_cast<std::size_t>(g_driver.settings["total_bytes"]);
  *free = *total - used_bytes() - g_driver.lagging_bytes;
  return kSuccess;
}

Result cuMemGetAllocationGranularity(std::size_t* bytes, const AllocationProperties* properties,
                                     int /*option*/) {
  STUB_ENTER("cuMemGetAllocationGranularity");
  if (properties->type != kAllocationPinned) return kInvalidValue;
  *bytes = kGranularity;
  return kSuccess;
}

Result cuMemAddressReserve(DevicePtr* at, std::size_t bytes, std::size_t /*alignment*/,
                           DevicePtr /*hint*/, unsigned long long flags) {
  STUB_ENTER("cuMemAddressReserve");
  if (bytes == 0 || bytes % kGranularity != 0 || flags != 0) return violation();
  void* const got =
      ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (got == MAP_FAILED) return kOutOfMemory;
  *at = reinterpret_cast<DevicePtr>(got);
  g_driver.reservations[*at] = bytes;
  return kSuccess;
}

Result cuMemAddressFree(DevicePtr at, std::size_t bytes) {
  STUB_ENTER("cuMemAddressFree");
  const auto found = g_driver.reservations.find(at);
  if (found == g_driver.reservations.end() || found->second != bytes) return violation();
  const auto mapped = g_driver.mappings.lower_bound(at);
  if (mapped != g_driver.mappings.end() && mapped->first < at + bytes) return violation();
  ::munmap(host_of(at), bytes);
  g_driver.reservations.erase(found);
  return kSuccess;
}

Result cuMemCreate(MemHandle* handle, std::size_t bytes, const AllocationProperties* properties,
                   unsigned long long flags) {
  STUB_ENTER("cuMemCreate");
  if (bytes == 0 || bytes % kGranularity != 0 || flags != 0 ||
      properties->type != kAllocationPinned || properties->location.type != kLocationDevice)
    return violation();
  if (properties->flags.gpu_direct_rdma != 0 && g_driver.settings["rdma_works"] == 0)
    return kNotPermitted;
  if (used_bytes() + bytes > static_cast<std::size_t>(g_driver.settings["total_bytes"]))
    return kOutOfMemory;
  const int fd = ::memfd_create("stub-device", MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes)) != 0) return kOutOfMemory;
  *handle = g_driver.next++;
  g_driver.memories[*handle] = {fd, bytes};
  return kSuccess;
}

Result cuMemRelease(MemHandle handle) {
  STUB_ENTER("cuMemRelease");
  const auto found = g_driver.memories.find(handle);
  if (found == g_driver.memories.end() || !found->second.owned) return violation();
  found->second.owned = false;
  drop_when_unused(handle);
  return kSuccess;
}

Result cuMemMap(DevicePtr at, std::size_t bytes, std::size_t offset, MemHandle handle,
                unsigned long long flags) {
  STUB_ENTER("cuMemMap");
  const auto found = g_driver.memories.find(handle);
  if (found == g_driver.memories.end() || found->second.bytes != bytes || offset != 0 || flags != 0)
    return violation();
  if (!inside_reservation(at, bytes) || g_driver.mappings.contains(at)) return violation();
  void* const got =
      ::mmap(host_of(at), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, found->second.fd, 0);
  if (got == MAP_FAILED) return kOutOfMemory;
  ++found->second.maps;
  g_driver.mappings[at] = {bytes, handle};
  return kSuccess;
}

Result cuMemUnmap(DevicePtr at, std::size_t bytes) {
  STUB_ENTER("cuMemUnmap");
  const auto found = g_driver.mappings.find(at);
  if (found == g_driver.mappings.end() || found->second.bytes != bytes) return violation();
  for (const Work& work : g_driver.pending)  // it would race the device
    if (work.at < at + bytes && at < work.at + work.bytes) ++g_driver.violations;
  protect_nothing(at, bytes);
  const MemHandle handle = found->second.handle;
  g_driver.mappings.erase(found);
  --g_driver.memories.at(handle).maps;
  drop_when_unused(handle);
  return kSuccess;
}

Result cuMemSetAccess(DevicePtr at, std::size_t bytes, const AccessDescription* access,
                      std::size_t count) {
  STUB_ENTER("cuMemSetAccess");
  if (count != 1 || access->flags != kAccessReadWrite || access->location.type != kLocationDevice)
    return violation();
  const DevicePtr end = at + bytes;
  for (DevicePtr next = at; next < end;) {
    const auto found = g_driver.mappings.find(next);
    if (found == g_driver.mappings.end() || next + found->second.bytes > end) return violation();
    found->second.access = true;
    next += found->second.bytes;
  }
  return ::mprotect(host_of(at), bytes, PROT_READ | PROT_WRITE) == 0 ? kSuccess : kUnknown;
}

Result cuMemHostRegister_v2(void* at, std::size_t bytes, unsigned flags) {
  STUB_ENTER("cuMemHostRegister");
  if (at == nullptr || bytes == 0 || flags != kHostRegisterPortable) return violation();
  const auto* const start = static_cast<const char*>(at);
  for (const auto& [other, size] : g_driver.registrations)
    if (start < other + size && other < start + bytes) return kHostMemoryAlreadyRegistered;
  g_driver.registrations[start] = bytes;
  return kSuccess;
}

Result cuMemHostUnregister(void* at) {
  STUB_ENTER("cuMemHostUnregister");
  const auto found = g_driver.registrations.find(static_cast<const char*>(at));
  if (found == g_driver.registrations.end()) return kHostMemoryNotRegistered;
  const std::size_t into = reinterpret_cast<std::uintptr_t>(at) % kHostPage;
  const std::size_t pages = (into + found->second + kHostPage - 1) / kHostPage;
  std::vector<unsigned char> states(pages);
  const bool mapped =
      ::mincore(static_cast<char*>(at) - into, pages * kHostPage, states.data()) == 0;
  g_driver.registrations.erase(found);
  return mapped ? kSuccess : violation();
}

Result cuStreamCreate(Stream* stream, unsigned flags) {
  STUB_ENTER("cuStreamCreate");
  if (flags != kStreamNonBlocking) return violation();
  *stream = reinterpret_cast<Stream>(g_driver.next++);
  g_driver.streams.insert(*stream);
  return kSuccess;
}

Result cuStreamDestroy_v2(Stream stream) {
  STUB_ENTER("cuStreamDestroy");
  run_pending(stream);
  return g_driver.streams.erase(stream) == 1 ? kSuccess : violation();
}

Result cuMemcpyHtoDAsync_v2(DevicePtr to, const void* from, std::size_t bytes, Stream stream) {
  STUB_ENTER("cuMemcpyHtoDAsync");
  return copy(to, from, bytes, stream, [=] { std::memcpy(host_of(to), from, bytes); });
}

Result cuMemcpyDtoHAsync_v2(void* to, DevicePtr from, std::size_t bytes, Stream stream) {
  STUB_ENTER("cuMemcpyDtoHAsync");
  return copy(from, to, bytes, stream, [=] { std::memcpy(to, host_of(from), bytes); });
}

Result cuMemsetD8Async(DevicePtr at, unsigned char value, std::size_t bytes, Stream stream) {
  STUB_ENTER("cuMemsetD8Async");
  if (!reachable(at, bytes)) return violation();
  return issue(stream, at, bytes, [=] { std::memset(host_of(at), value, bytes); });
}

Result cuEventCreate(Event* event, unsigned flags) {
  STUB_ENTER("cuEventCreate");
  if ((flags & ~(kEventBlockingSync | kEventDisableTiming)) != 0) return violation();
  *event = reinterpret_cast<Event>(g_driver.next++);
  g_driver.events[*event] = nullptr;
  return kSuccess;
}

Result cuEventDestroy_v2(Event event) {
  STUB_ENTER("cuEventDestroy");
  return g_driver.events.erase(event) == 1 ? kSuccess : violation();
}

Result cuEventRecord(Event event, Stream stream) {
  STUB_ENTER("cuEventRecord");
  const auto found = g_driver.events.find(event);
  if (found == g_driver.events.end() || !g_driver.streams.contains(stream)) return violation();
  found->second = stream;
  return kSuccess;
}

Result cuEventSynchronize(Event event) {
  STUB_ENTER("cuEventSynchronize");
  const auto found = g_driver.events.find(event);
  if (found == g_driver.events.end()) return violation();
  if (found->second != nullptr) run_pending(found->second);
  return kSuccess;
}

Result cuEventQuery(Event event) {
  STUB_ENTER("cuEventQuery");
  const auto found = g_driver.events.find(event);
  if (found == g_driver.events.end()) return violation();
  const auto works = [&](const Work& work) { return work.stream == found->second; };
  if (std::none_of(g_driver.pending.begin(), g_driver.pending.end(), works)) return kSuccess;
  long& polls = g_driver.settings["polls"];
  if (polls == 0 || --polls > 0) return kNotReady;
  run_pending(found->second);
  return kSuccess;
}

// Plain allocations: only programs that compare with them need these.
Result cuMemAlloc_v2(DevicePtr* at, std::size_t bytes) {
  STUB_ENTER("cuMemAlloc");
  void* const got =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (got == MAP_FAILED) return kOutOfMemory;
  *at = reinterpret_cast<DevicePtr>(got);
  g_driver.mappings[*at] = {bytes, 0, true};
  return kSuccess;
}

Result cuMemFree_v2(DevicePtr at) {
  STUB_ENTER("cuMemFree");
  const auto found = g_driver.mappings.find(at);
  if (found == g_driver.mappings.end() || found->second.handle != 0) return violation();
  ::munmap(host_of(at), found->second.bytes);
  g_driver.mappings.erase(found);
  return kSuccess;
}

Result cuMemHostAlloc(void** at, std::size_t bytes, unsigned /*flags*/) {
  STUB_ENTER("cuMemHostAlloc");
  *at = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  return *at == nullptr ? kOutOfMemory : kSuccess;
}

Result cuMemFreeHost(void* at) {
  STUB_ENTER("cuMemFreeHost");
  std::free(at);
  return kSuccess;
}

// Control, see cuda_stub.h.

void plexrl_stub_reset() {
  const std::scoped_lock lock(g_mutex);
  for (const auto& [at, bytes] : g_driver.reservations) ::munmap(host_of(at), bytes);
  for (const auto& [handle, memory] : g_driver.memories) ::close(memory.fd);
  g_driver = Driver();
  t_contexts.clear();
}

void plexrl_stub_fail(const char* function, long nth, int code) {
  const std::scoped_lock lock(g_mutex);
  g_driver.faults[function] = {nth, code};
}

void plexrl_stub_set(const char* key, long value) {
  const std::scoped_lock lock(g_mutex);
  g_driver.settings[key] = value;
}

long plexrl_stub_count(const char* what) {
  const std::scoped_lock lock(g_mutex);
  const std::map<std::string, long> all = {
      {"handles", static_cast<long>(g_driver.memories.size())},
      {"reservations", static_cast<long>(g_driver.reservations.size())},
      {"mappings", static_cast<long>(g_driver.mappings.size())},
      {"registrations", static_cast<long>(g_driver.registrations.size())},
      {"streams", static_cast<long>(g_driver.streams.size())},
      {"events", static_cast<long>(g_driver.events.size())},
      {"contexts", g_driver.contexts},
      {"used_bytes", static_cast<long>(used_bytes())},
      {"copies", g_driver.copies},
      {"violations", g_driver.violations},
      {"pushed", static_cast<long>(t_contexts.size())}};
  const auto found = all.find(what);
  return found == all.end() ? -1 : found->second;
}

const char* plexrl_stub_calls() {
  const std::scoped_lock lock(g_mutex);
  static std::string copy_of_calls;
  copy_of_calls = g_driver.calls;
  return copy_of_calls.c_str();
}

}  // extern "C"
