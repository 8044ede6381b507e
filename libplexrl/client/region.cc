// SPDX-License-Identifier: Apache-2.0
#include "client/region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

namespace plexrl::client {
namespace {

constexpr int kReserve = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

unsigned long long number(std::uint64_t value) { return value; }

// A file that could shrink would turn a later access into a crash.
Status check_fd(int fd, std::uint64_t bytes) {
  struct stat info {};
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(fd, &info) != 0 ||
      static_cast<std::uint64_t>(info.st_size) != bytes)
    return error(Code::PROTOCOL, "the service gave a memory file that is not sealed to its size");
  return {};
}

class MappedMemory final : public RegionMemory {
 public:
  MappedMemory(void* address, std::uint64_t bytes) : address_(address), bytes_(bytes) {}
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;
  ~MappedMemory() override { (void)::munmap(address_, bytes_); }

  [[nodiscard]] void* address() const override { return address_; }
  [[nodiscard]] Status resume(int fd) override {
    const int flags = MAP_SHARED | MAP_FIXED;
    if (::mmap(address_, bytes_, PROT_READ | PROT_WRITE, flags, fd, 0) == address_) return {};
    return errno_error(Code::NO_CAPACITY, errno, "map a region of %llu bytes", number(bytes_));
  }
  [[nodiscard]] Status suspend(int) override {
    if (::mmap(address_, bytes_, PROT_NONE, kReserve | MAP_FIXED, -1, 0) == address_) return {};
    return errno_error(Code::IO, errno, "unmap a region of %llu bytes", number(bytes_));
  }

 private:
  void* address_;
  std::uint64_t bytes_;
};

}  // namespace

Result<std::unique_ptr<RegionMemory>> make_mapped_memory(std::uint64_t bytes) {
  void* const address = ::mmap(nullptr, bytes, PROT_NONE, kReserve, -1, 0);
  if (address == MAP_FAILED)
    return errno_error(Code::NO_CAPACITY, errno, "address space for a region of %llu bytes",
                       number(bytes));
  return std::unique_ptr<RegionMemory>(std::make_unique<MappedMemory>(address, bytes));
}

Result<std::unique_ptr<Region>> Region::make(std::uint64_t id, UniqueFd fd, std::uint64_t bytes,
                                             const RegionMemoryFactory& memory) {
  PLEXRL_TRY(check_fd(fd.get(), bytes));
  PLEXRL_ASSIGN(auto made, memory(bytes));
  return std::unique_ptr<Region>(new Region(id, std::move(fd), bytes, std::move(made)));
}

}  // namespace plexrl::client
