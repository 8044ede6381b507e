// SPDX-License-Identifier: Apache-2.0
#include "device_acl.h"

#include <sys/stat.h>
#include <sys/xattr.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace plexrl::spank {
namespace {

constexpr const char* kName = "system.posix_acl_access";
constexpr std::uint32_t kVersion = 2;
constexpr std::size_t kHead = 4;
constexpr std::size_t kEntry = 8;
constexpr std::size_t kMaxBytes = 64U << 10;
constexpr std::uint32_t kNoId = 0xffffffff;
constexpr std::uint16_t kReadWrite = 6;

// Tags of the kernel, in the order that it demands.
constexpr std::uint16_t kOwner = 0x01;
constexpr std::uint16_t kUser = 0x02;
constexpr std::uint16_t kGroupOwner = 0x04;
constexpr std::uint16_t kGroup = 0x08;
constexpr std::uint16_t kMask = 0x10;
constexpr std::uint16_t kOther = 0x20;

void put(std::string& out, std::uint32_t value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i)
    out.push_back(static_cast<char>(static_cast<unsigned char>(value >> (8 * i))));
}

std::uint32_t number(std::string_view bytes, std::size_t at, std::size_t count) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < count; ++i)
    value |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return value;
}

Acl of_mode(mode_t mode) {
  const auto bits = [&](unsigned shift) { return static_cast<std::uint16_t>((mode >> shift) & 7); };
  return {{kOwner, bits(6), kNoId}, {kGroupOwner, bits(3), kNoId}, {kOther, bits(0), kNoId}};
}

// The mask bounds named entries and the group: all of them together. Without named ones it goes.
Acl in_order(Acl acl) {
  std::erase_if(acl, [](const AclEntry& entry) { return entry.tag == kMask; });
  std::uint16_t mask = 0;
  bool named = false;
  for (const AclEntry& entry : acl) {
    named = named || entry.tag == kUser || entry.tag == kGroup;
    if (entry.tag == kUser || entry.tag == kGroup || entry.tag == kGroupOwner)
      mask = static_cast<std::uint16_t>(mask | entry.permissions);
  }
  if (named) acl.push_back({kMask, mask, kNoId});
  std::sort(acl.begin(), acl.end(), [](const AclEntry& a, const AclEntry& b) {
    return a.tag != b.tag ? a.tag < b.tag : a.id < b.id;
  });
  return acl;
}

Result<Acl> read_acl(const std::string& path) {
  std::string bytes(kMaxBytes, '\0');
  const ssize_t got = ::getxattr(path.c_str(), kName, bytes.data(), bytes.size());
  if (got >= 0) return decode_acl({bytes.data(), static_cast<std::size_t>(got)});
  if (errno == EOPNOTSUPP)
    return error(Code::UNSUPPORTED, "'%s': its file system has no ACLs", path.c_str());
  if (errno != ENODATA) return errno_error(Code::IO, errno, "ACL of '%s'", path.c_str());
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return errno_error(Code::IO, errno, "'%s'", path.c_str());
  return of_mode(info.st_mode);
}

Status write_acl(const std::string& path, const Acl& acl) {
  const std::string bytes = encode_acl(acl);
  if (::setxattr(path.c_str(), kName, bytes.data(), bytes.size(), 0) == 0) return {};
  return errno_error(errno == EOPNOTSUPP ? Code::UNSUPPORTED : Code::IO, errno, "ACL of '%s'",
                     path.c_str());
}

}  // namespace

Result<Acl> decode_acl(std::string_view bytes) {
  if (bytes.size() < kHead || (bytes.size() - kHead) % kEntry != 0 ||
      number(bytes, 0, 4) != kVersion)
    return error(Code::CORRUPT, "an ACL of %zu bytes that is not of version %u", bytes.size(),
                 kVersion);
  Acl acl;
  for (std::size_t at = kHead; at < bytes.size(); at += kEntry)
    acl.push_back({static_cast<std::uint16_t>(number(bytes, at, 2)),
                   static_cast<std::uint16_t>(number(bytes, at + 2, 2)), number(bytes, at + 4, 4)});
  return acl;
}

std::string encode_acl(const Acl& acl) {
  std::string bytes;
  put(bytes, kVersion, 4);
  for (const AclEntry& entry : acl) {
    put(bytes, entry.tag, 2);
    put(bytes, entry.permissions, 2);
    put(bytes, entry.id, 4);
  }
  return bytes;
}

Acl with_user(Acl acl, std::uint32_t uid) {
  acl = without_user(std::move(acl), uid);
  acl.push_back({kUser, kReadWrite, uid});
  return in_order(std::move(acl));
}

Acl without_user(Acl acl, std::uint32_t uid) {
  std::erase_if(acl, [&](const AclEntry& entry) { return entry.tag == kUser && entry.id == uid; });
  return in_order(std::move(acl));
}

Status let_in(const std::string& path, std::uint32_t uid) {
  PLEXRL_ASSIGN(Acl acl, read_acl(path));
  return write_acl(path, with_user(std::move(acl), uid));
}

Status shut_out(const std::string& path, std::uint32_t uid) {
  PLEXRL_ASSIGN(const Acl acl, read_acl(path));
  const Acl wanted = without_user(acl, uid);
  return wanted == acl ? Status() : write_acl(path, wanted);
}

}  // namespace plexrl::spank
