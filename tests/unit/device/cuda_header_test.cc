// SPDX-License-Identifier: Apache-2.0
// Our declarations of the CUDA driver API against the header of an installed toolkit. Compiled only
// where configure found <cuda.h> (--with-cuda); a difference is a compile error.
#include <cuda.h>
#include <gtest/gtest.h>

#include <type_traits>

#include "device/cuda_api.h"

namespace plexrl::device {
namespace {

#define SAME(ours, theirs) \
  static_assert((ours) == static_cast<std::remove_const_t<decltype(ours)>>(theirs))
SAME(cuda::kSuccess, CUDA_SUCCESS);
SAME(cuda::kInvalidValue, CUDA_ERROR_INVALID_VALUE);
SAME(cuda::kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
SAME(cuda::kNotInitialized, CUDA_ERROR_NOT_INITIALIZED);
SAME(cuda::kDeinitialized, CUDA_ERROR_DEINITIALIZED);
SAME(cuda::kDeviceUnavailable, CUDA_ERROR_DEVICE_UNAVAILABLE);
SAME(cuda::kNoDevice, CUDA_ERROR_NO_DEVICE);
SAME(cuda::kInvalidDevice, CUDA_ERROR_INVALID_DEVICE);
SAME(cuda::kInvalidContext, CUDA_ERROR_INVALID_CONTEXT);
SAME(cuda::kEccUncorrectable, CUDA_ERROR_ECC_UNCORRECTABLE);
SAME(cuda::kNvlinkUncorrectable, CUDA_ERROR_NVLINK_UNCORRECTABLE);
SAME(cuda::kNotFound, CUDA_ERROR_NOT_FOUND);
SAME(cuda::kNotReady, CUDA_ERROR_NOT_READY);
SAME(cuda::kIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME(cuda::kLaunchTimeout, CUDA_ERROR_LAUNCH_TIMEOUT);
SAME(cuda::kContextIsDestroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED);
SAME(cuda::kAssert, CUDA_ERROR_ASSERT);
SAME(cuda::kHostMemoryAlreadyRegistered, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
SAME(cuda::kHostMemoryNotRegistered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
SAME(cuda::kHardwareStackError, CUDA_ERROR_HARDWARE_STACK_ERROR);
SAME(cuda::kIllegalInstruction, CUDA_ERROR_ILLEGAL_INSTRUCTION);
SAME(cuda::kMisalignedAddress, CUDA_ERROR_MISALIGNED_ADDRESS);
SAME(cuda::kInvalidAddressSpace, CUDA_ERROR_INVALID_ADDRESS_SPACE);
SAME(cuda::kInvalidPc, CUDA_ERROR_INVALID_PC);
SAME(cuda::kLaunchFailed, CUDA_ERROR_LAUNCH_FAILED);
SAME(cuda::kNotPermitted, CUDA_ERROR_NOT_PERMITTED);
SAME(cuda::kNotSupported, CUDA_ERROR_NOT_SUPPORTED);
SAME(cuda::kUnknown, CUDA_ERROR_UNKNOWN);
SAME(cuda::kAttributeVirtualMemory, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SAME(cuda::kAttributeRdmaWithVmm, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
SAME(cuda::kAllocationPinned, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME(cuda::kLocationDevice, CU_MEM_LOCATION_TYPE_DEVICE);
SAME(cuda::kGranularityMinimum, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
SAME(cuda::kAccessReadWrite, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME(cuda::kHostRegisterPortable, CU_MEMHOSTREGISTER_PORTABLE);
SAME(cuda::kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
SAME(cuda::kEventBlockingSync, CU_EVENT_BLOCKING_SYNC);
SAME(cuda::kEventDisableTiming, CU_EVENT_DISABLE_TIMING);
#undef SAME

static_assert(sizeof(cuda::Location) == sizeof(CUmemLocation));
static_assert(offsetof(cuda::Location, id) == offsetof(CUmemLocation, id));
static_assert(sizeof(cuda::AllocationProperties) == sizeof(CUmemAllocationProp));
static_assert(offsetof(cuda::AllocationProperties, location) ==
              offsetof(CUmemAllocationProp, location));
static_assert(offsetof(cuda::AllocationProperties, handle_types) ==
              offsetof(CUmemAllocationProp, requestedHandleTypes));
static_assert(offsetof(cuda::AllocationProperties, flags) ==
              offsetof(CUmemAllocationProp, allocFlags));
static_assert(offsetof(cuda::AllocationProperties, flags.gpu_direct_rdma) ==
              offsetof(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable));
static_assert(sizeof(cuda::AccessDescription) == sizeof(CUmemAccessDesc));
static_assert(offsetof(cuda::AccessDescription, flags) == offsetof(CUmemAccessDesc, flags));

// Parameters may differ in what the binary interface does not see: an enum and an int, a pointer
// and a pointer, one integer type and another of its size.
template <class A, class B>
constexpr bool kSameWord = sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B> &&
                           (std::is_integral_v<A> || std::is_enum_v<A> ||
                            std::is_pointer_v<A>)&&(std::is_integral_v<B> || std::is_enum_v<B> ||
                                                    std::is_pointer_v<B>);
template <class A, class B>
struct SameCall : std::false_type {};
template <class R, class... A, class S, class... B>
struct SameCall<R (*)(A...), S (*)(B...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(A) != sizeof...(B))
      return false;
    else
      return kSameWord<R, S> && (kSameWord<A, B> && ...);
  }();
};

struct Ours {
  using Result = cuda::Result;
  using Device = cuda::Device;
  using DevicePtr = cuda::DevicePtr;
  using MemHandle = cuda::MemHandle;
  using Context = cuda::Context;
  using Stream = cuda::Stream;
  using Event = cuda::Event;
  using AllocationProperties = cuda::AllocationProperties;
  using AccessDescription = cuda::AccessDescription;
#define DECLARE(member, symbol, parameters)   \
  using member##_type = Result(*) parameters; \
  static_assert(SameCall<member##_type, decltype(&::symbol)>::value, #symbol);
  PLEXRL_CUDA_FUNCTIONS(DECLARE)
#undef DECLARE
};

TEST(CudaHeader, AgreesWithOurDeclarations) { SUCCEED() << "checked by the compiler"; }

}  // namespace
}  // namespace plexrl::device
