// SPDX-License-Identifier: Apache-2.0
// Reading a file of a model at an offset, all or an error.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace plexrl::model {

// IO: what the system said; CORRUPT: the file ends early. Both begin with `what`.
[[nodiscard]] inline Status read_at(int fd, void* to, std::uint64_t bytes, std::uint64_t offset,
                                    const std::string& what) {
  auto* at = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const ssize_t got =
        ::pread(fd, at, std::min<std::uint64_t>(bytes, 1U << 30), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(Code::IO, errno, "%s: read", what.c_str());
    if (got == 0) return error(Code::CORRUPT, "%s: the file ends early (truncated)", what.c_str());
    at += got;
    bytes -= static_cast<std::uint64_t>(got);
    offset += static_cast<std::uint64_t>(got);
  }
  return {};
}

}  // namespace plexrl::model
