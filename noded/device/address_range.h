// SPDX-License-Identifier: Apache-2.0
// AddressRange: address space that stays ours while memory comes and goes. Pages without memory are
// PROT_NONE, so a use of them faults instead of reading something else. Sole owner; one thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/result.h"

namespace plexrl::device {

class AddressRange {
 public:
  enum class Access : bool { kRead, kReadWrite };
  // What a pool is made of, which says how its page tables are filled best.
  enum class Pages : std::uint8_t { kUnknown, kSmall, kHuge };

  AddressRange() noexcept = default;
  AddressRange(AddressRange&& other) noexcept { *this = std::move(other); }
  AddressRange& operator=(AddressRange&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;
  ~AddressRange();

  // bytes > 0, rounded up to whole pages; begins at a multiple of the huge page size when it is as
  // large as one, so that huge pages can be mapped as such. NO_CAPACITY when the address space does
  // not suffice.
  [[nodiscard]] static Result<AddressRange> reserve(std::size_t bytes);

  // Shares bytes of `fd` from `offset` into [at, at + bytes), page tables filled. All multiples of
  // the page size and inside the range.
  // A wrong `pages`, or a pool of both, costs time only.
  [[nodiscard]] Status map(std::size_t at, int fd, off_t offset, std::size_t bytes, Access access,
                           Pages pages = Pages::kUnknown);
  // Without filling the page tables.
  [[nodiscard]] Status map_lazily(std::size_t at, int fd, off_t offset, std::size_t bytes,
                                  Access access);
  // Fills the page tables of what is mapped in the whole range. What fails faults when it is used.
  void populate() const noexcept;
  // The whole range is without memory again; the address space is kept.
  [[nodiscard]] Status clear();

  // Of the first page of `bytes` bytes of memory. kUnknown when that cannot be told.
  [[nodiscard]] static Pages pages_of(int fd, std::size_t bytes);

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  [[nodiscard]] Status map_with(int flags, std::size_t at, int fd, off_t offset, std::size_t bytes,
                                Access access);

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace plexrl::device
