// SPDX-License-Identifier: Apache-2.0
// The part of the CUDA driver's binary interface that we use, written from NVIDIA's public
// documentation of the driver API, so that no CUDA headers are needed to build. Names are ours; the
// exported symbols (with their version suffix) are in PLEXRL_CUDA_FUNCTIONS. Sizes and offsets are
// checked below; where <cuda.h> is installed, tests/unit/device/cuda_header_test.cc compares all of
// it with that header.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plexrl::device::cuda {

using Result = int;  // CUresult
using Device = int;  // ordinal's handle
using DevicePtr = unsigned long long;
using MemHandle = unsigned long long;  // physical memory of cuMemCreate
using Context = struct ContextTag*;
using Stream = struct StreamTag*;
using Event = struct EventTag*;

inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidValue = 1;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kNotInitialized = 3;
inline constexpr Result kDeinitialized = 4;
inline constexpr Result kDeviceUnavailable = 46;
inline constexpr Result kNoDevice = 100;
inline constexpr Result kInvalidDevice = 101;
inline constexpr Result kInvalidContext = 201;
inline constexpr Result kEccUncorrectable = 214;
inline constexpr Result kNvlinkUncorrectable = 220;
inline constexpr Result kNotFound = 500;
inline constexpr Result kNotReady = 600;
inline constexpr Result kIllegalAddress = 700;
inline constexpr Result kLaunchTimeout = 702;
inline constexpr Result kContextIsDestroyed = 709;
inline constexpr Result kAssert = 710;
inline constexpr Result kHostMemoryAlreadyRegistered = 712;
inline constexpr Result kHostMemoryNotRegistered = 713;
inline constexpr Result kHardwareStackError = 714;
inline constexpr Result kIllegalInstruction = 715;
inline constexpr Result kMisalignedAddress = 716;
inline constexpr Result kInvalidAddressSpace = 717;
inline constexpr Result kInvalidPc = 718;
inline constexpr Result kLaunchFailed = 719;
inline constexpr Result kNotPermitted = 800;
inline constexpr Result kNotSupported = 801;
inline constexpr Result kUnknown = 999;

inline constexpr int kAttributeVirtualMemory = 102;  // virtual memory management supported
inline constexpr int kAttributeRdmaWithVmm = 110;    // GPUDirect RDMA with that memory supported

inline constexpr int kAllocationPinned = 1;
inline constexpr int kLocationDevice = 1;
inline constexpr int kGranularityMinimum = 0;
inline constexpr int kAccessReadWrite = 3;
inline constexpr unsigned kHostRegisterPortable = 1;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventBlockingSync = 1;
inline constexpr unsigned kEventDisableTiming = 2;

struct Location {
  int type = 0;
  int id = 0;
};
struct AllocationFlags {
  unsigned char compression = 0;
  unsigned char gpu_direct_rdma = 0;
  unsigned short usage = 0;
  unsigned char reserved[4] = {};
};
struct AllocationProperties {
  int type = 0;
  int handle_types = 0;
  Location location;
  void* win32_metadata = nullptr;
  AllocationFlags flags;
};
struct AccessDescription {
  Location location;
  int flags = 0;
};

static_assert(sizeof(void*) == 8 && sizeof(DevicePtr) == 8 && sizeof(MemHandle) == 8);
static_assert(sizeof(Location) == 8 && offsetof(Location, id) == 4);
static_assert(sizeof(AllocationFlags) == 8 && offsetof(AllocationFlags, gpu_direct_rdma) == 1);
static_assert(sizeof(AllocationProperties) == 32 && offsetof(AllocationProperties, location) == 8 &&
              offsetof(AllocationProperties, win32_metadata) == 16 &&
              offsetof(AllocationProperties, flags) == 24);
static_assert(sizeof(AccessDescription) == 12 && offsetof(AccessDescription, flags) == 8);

// X(member, exported symbol, parameters); all return Result.
#define PLEXRL_CUDA_FUNCTIONS(X)                                                                  \
  X(init, cuInit, (unsigned flags))                                                               \
  X(driver_version, cuDriverGetVersion, (int* version))                                           \
  X(error_name, cuGetErrorName, (Result code, const char** name))                                 \
  X(error_text, cuGetErrorString, (Result code, const char** text))                               \
  X(device_count, cuDeviceGetCount, (int* count))                                                 \
  X(device_get, cuDeviceGet, (Device * device, int ordinal))                                      \
  X(device_name, cuDeviceGetName, (char* name, int size, Device device))                          \
  X(device_attribute, cuDeviceGetAttribute, (int* value, int attribute, Device device))           \
  X(context_retain, cuDevicePrimaryCtxRetain, (Context * context, Device device))                 \
  X(context_release, cuDevicePrimaryCtxRelease_v2, (Device device))                               \
  X(context_push, cuCtxPushCurrent_v2, (Context context))                                         \
  X(context_pop, cuCtxPopCurrent_v2, (Context * context))                                         \
  X(context_synchronize, cuCtxSynchronize, ())                                                    \
  X(memory_info, cuMemGetInfo_v2, (std::size_t * free, std::size_t * total))                      \
  X(granularity, cuMemGetAllocationGranularity,                                                   \
    (std::size_t * bytes, const AllocationProperties* properties, int option))                    \
  X(address_reserve, cuMemAddressReserve,                                                         \
    (DevicePtr * at, std::size_t bytes, std::size_t alignment, DevicePtr hint,                    \
     unsigned long long flags))                                                                   \
  X(address_free, cuMemAddressFree, (DevicePtr at, std::size_t bytes))                            \
  X(memory_create, cuMemCreate,                                                                   \
    (MemHandle * handle, std::size_t bytes, const AllocationProperties* properties,               \
     unsigned long long flags))                                                                   \
  X(memory_release, cuMemRelease, (MemHandle handle))                                             \
  X(memory_map, cuMemMap,                                                                         \
    (DevicePtr at, std::size_t bytes, std::size_t offset, MemHandle handle,                       \
     unsigned long long flags))                                                                   \
  X(memory_unmap, cuMemUnmap, (DevicePtr at, std::size_t bytes))                                  \
  X(set_access, cuMemSetAccess,                                                                   \
    (DevicePtr at, std::size_t bytes, const AccessDescription* access, std::size_t count))        \
  X(host_register, cuMemHostRegister_v2, (void* at, std::size_t bytes, unsigned flags))           \
  X(host_unregister, cuMemHostUnregister, (void* at))                                             \
  X(stream_create, cuStreamCreate, (Stream * stream, unsigned flags))                             \
  X(stream_destroy, cuStreamDestroy_v2, (Stream stream))                                          \
  X(copy_in, cuMemcpyHtoDAsync_v2,                                                                \
    (DevicePtr to, const void* from, std::size_t bytes, Stream stream))                           \
  X(copy_out, cuMemcpyDtoHAsync_v2, (void* to, DevicePtr from, std::size_t bytes, Stream stream)) \
  X(fill_bytes, cuMemsetD8Async,                                                                  \
    (DevicePtr at, unsigned char value, std::size_t bytes, Stream stream))                        \
  X(event_create, cuEventCreate, (Event * event, unsigned flags))                                 \
  X(event_destroy, cuEventDestroy_v2, (Event event))                                              \
  X(event_record, cuEventRecord, (Event event, Stream stream))                                    \
  X(event_query, cuEventQuery, (Event event))                                                     \
  X(event_synchronize, cuEventSynchronize, (Event event))

struct Functions {
#define PLEXRL_CUDA_MEMBER(member, symbol, parameters) Result(*member) parameters = nullptr;
  PLEXRL_CUDA_FUNCTIONS(PLEXRL_CUDA_MEMBER)
#undef PLEXRL_CUDA_MEMBER
};

// The functions' names for messages.
namespace symbol {
#define PLEXRL_CUDA_SYMBOL(member, symbol, parameters) \
  inline constexpr const char* member = #symbol;
PLEXRL_CUDA_FUNCTIONS(PLEXRL_CUDA_SYMBOL)
#undef PLEXRL_CUDA_SYMBOL
}  // namespace symbol

}  // namespace plexrl::device::cuda
