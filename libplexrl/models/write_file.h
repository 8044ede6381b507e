// SPDX-License-Identifier: Apache-2.0
// Writing files of a model, all or an error. Any thread; blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

namespace plexrl::model {

// IO: what the system said, and on a full disk what to do; begins with `what`.
[[nodiscard]] Status write_at(int fd, const void* from, std::uint64_t bytes, std::uint64_t offset,
                              const std::string& what);
// IO or, with O_EXCL among `more`, EXISTS.
[[nodiscard]] Result<UniqueFd> create_file(const std::string& path, int more = 0);
[[nodiscard]] Status sync_file(int fd, const std::string& path);

// Under another name first, synced, then renamed: old or new, never half. IO.
[[nodiscard]] Status write_text(const std::string& path, std::string_view text);

// So many bytes more fit on the file system of `path`; IO says how many do. Room that is there now
// may be gone later: writes can still fail.
[[nodiscard]] Status check_room(const std::string& path, std::uint64_t bytes);

}  // namespace plexrl::model
