// SPDX-License-Identifier: Apache-2.0
// DeviceAcl: lets the user of a lease job open the node's device files, by an entry of their POSIX
// ACL. Read and written as the kernel keeps it (system.posix_acl_access, linux/posix_acl_xattr.h),
// so that a hook needs no library. Root; any process, one at a time per file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace plexrl::spank {

struct AclEntry {
  std::uint16_t tag = 0;
  std::uint16_t permissions = 0;  // 4 read, 2 write, 1 execute
  std::uint32_t id = 0;
  friend bool operator==(const AclEntry&, const AclEntry&) = default;
};
using Acl = std::vector<AclEntry>;

// CORRUPT when it is not of version 2 or not whole.
[[nodiscard]] Result<Acl> decode_acl(std::string_view bytes);
[[nodiscard]] std::string encode_acl(const Acl& acl);
// With and without read and write for the user; mask and order are made right.
[[nodiscard]] Acl with_user(Acl acl, std::uint32_t uid);
[[nodiscard]] Acl without_user(Acl acl, std::uint32_t uid);

// UNSUPPORTED: the file system has no ACLs. Nothing to do is no error.
[[nodiscard]] Status let_in(const std::string& path, std::uint32_t uid);
[[nodiscard]] Status shut_out(const std::string& path, std::uint32_t uid);

}  // namespace plexrl::spank
