// SPDX-License-Identifier: Apache-2.0
#include "runtime/region_service.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace plexrl::runtime {
namespace {

// Nobody can change its size under the other's feet, nor lift these seals.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr std::uint64_t kLargest = std::uint64_t{1} << 46;

Result<UniqueFd> make_file(std::uint64_t bytes) {
  UniqueFd fd(::memfd_create("plexrl-region", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0)
    return errno_error(Code::IO, errno, "a memory file for a region");
  return fd;
}

Status check_file(int fd, std::uint64_t bytes) {
  struct stat info {};
  const bool ours = ::fcntl(fd, F_GET_SEALS) == kSeals && ::fstat(fd, &info) == 0 &&
                    static_cast<std::uint64_t>(info.st_size) == bytes;
  return ours ? Status() : error(Code::PERMISSION, "the file is not a region of that size");
}

}  // namespace

Result<RegionService::Made> RegionService::create(TenantId tenant, SessionId session,
                                                  std::uint64_t bytes, UniqueFd given) {
  if (bytes == 0 || bytes > kLargest)
    return error(Code::INVALID_ARGUMENT, "a region of %llu bytes",
                 static_cast<unsigned long long>(bytes));
  std::size_t count = 0;
  for (auto it = regions_.lower_bound({session, 0});
       it != regions_.end() && it->first.first == session; ++it)
    ++count;
  if (count >= kMaxPerSession)
    return error(Code::BUSY, "the lease has %zu regions, which is the limit", kMaxPerSession);
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  Made made;
  made.info.bytes = (bytes + page - 1) / page * page;
  if (given) {
    PLEXRL_TRY(check_file(given.get(), made.info.bytes));
  } else {
    PLEXRL_ASSIGN(made.fd, make_file(made.info.bytes));
  }
  PLEXRL_TRY(state_.charge(tenant, made.info.bytes).within("region"));
  made.info.region = ++last_;
  regions_.emplace(Key{session, made.info.region}, Region{tenant, made.info.bytes});
  return made;
}

Status RegionService::destroy(SessionId session, std::uint64_t region) {
  const auto found = regions_.find({session, region});
  if (found == regions_.end())
    return error(Code::NOT_FOUND, "this connection has no region %llu",
                 static_cast<unsigned long long>(region));
  refund(found->second);
  regions_.erase(found);
  return {};
}

void RegionService::session_closed(SessionId session) {
  auto it = regions_.lower_bound({session, 0});
  while (it != regions_.end() && it->first.first == session) {
    refund(it->second);
    it = regions_.erase(it);
  }
}

}  // namespace plexrl::runtime
