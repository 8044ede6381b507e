// SPDX-License-Identifier: Apache-2.0
#include "engine/stray_engines.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/unique_fd.h"
#include "engine/engine_process.h"

namespace plexrl::engine {
namespace {

namespace fs = std::filesystem;
using Number = unsigned long long;

constexpr Duration kPatience{2 * kSecond.ns};
constexpr std::string_view kSocket = ".sock";

template <class Integer>
std::optional<Integer> number_of(std::string_view text) {
  Integer value{};
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || failure != std::errc() || end != text.data() + text.size())
    return std::nullopt;
  return value;
}

// "17.sock", and with `suffix` ".pid" "17.sock.pid".
std::optional<EngineId> id_of_file(std::string_view name) {
  if (name.ends_with(".pid")) name.remove_suffix(4);
  if (!name.ends_with(kSocket)) return std::nullopt;
  name.remove_suffix(kSocket.size());
  const auto id = number_of<std::uint64_t>(name);
  return id ? std::optional(EngineId{*id}) : std::nullopt;
}

// Inode of a unix socket -> engine whose path in the directory it was bound to.
using Sockets = std::map<std::uint64_t, EngineId>;

Sockets sockets_in(const std::string& directory) {
  Sockets sockets;
  std::ifstream table("/proc/net/unix");
  for (std::string line; std::getline(table, line);) {
    // "address: references protocol flags type state inode path"
    std::istringstream words(line);
    std::string skipped;
    std::uint64_t inode = 0;
    std::string path;
    for (int i = 0; i < 6; ++i) words >> skipped;
    if (!(words >> inode) || !std::getline(words >> std::ws, path)) continue;
    if (!path.starts_with(directory + "/")) continue;
    if (const auto id = id_of_file(std::string_view(path).substr(directory.size() + 1)))
      sockets.emplace(inode, *id);
  }
  return sockets;
}

// The engine that this process is, by the socket that it holds and its arguments.
std::optional<EngineId> engine_of(pid_t pid, const Sockets& sockets) {
  const std::string folder = "/proc/" + std::to_string(pid);
  struct stat owner {};
  if (::stat(folder.c_str(), &owner) != 0 || owner.st_uid != ::geteuid()) return std::nullopt;
  std::array<char, 64> link{};
  const std::string listener = folder + "/fd/" + std::to_string(kEngineListenerFd);
  const ssize_t length = ::readlink(listener.c_str(), link.data(), link.size());
  std::string_view target(link.data(), length < 0 ? 0 : static_cast<std::size_t>(length));
  if (!target.starts_with("socket:[") || !target.ends_with("]")) return std::nullopt;
  target = target.substr(8, target.size() - 9);
  const auto inode = number_of<std::uint64_t>(target);
  const auto found = inode ? sockets.find(*inode) : sockets.end();
  if (found == sockets.end() || !is_engine(pid, found->second)) return std::nullopt;
  return found->second;
}

// Its pidfd when it was killed. The identity is looked at again behind the pidfd: the number may
// have got another owner in between.
UniqueFd end_engine(pid_t pid, EngineId id, const Sockets& sockets) {
  UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process || engine_of(pid, sockets) != id) return {};
  if (::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0) != 0) {
    PLEXRL_LOG(kError, "engine %llu (pid %d) belongs to no job and cannot be ended: %s",
               static_cast<Number>(id.value), pid,
               errno_error(Code::IO, errno, "kill").text().c_str());
    return {};
  }
  PLEXRL_LOG(kWarning, "engine %llu (pid %d) of an earlier plexrld belongs to no job: ended",
             static_cast<Number>(id.value), pid);
  return process;
}

void wait_for(const std::vector<UniqueFd>& processes) {
  const TimePoint end = system_clock().now() + kPatience;
  for (const UniqueFd& process : processes) {
    const std::int64_t left = (end - system_clock().now()).ns / kMillisecond.ns;
    pollfd ended{process.get(), POLLIN, 0};
    static_cast<void>(::poll(&ended, 1, left > 0 ? static_cast<int>(left) : 0));
  }
}

void remove_files(const std::string& directory, const std::set<EngineId>& known) {
  std::error_code ignored;
  std::vector<fs::path> stray;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    const auto id = id_of_file(entry.path().filename().string());
    if (id && known.count(*id) == 0) stray.push_back(entry.path());
  }
  for (const fs::path& path : stray) fs::remove(path, ignored);
}

}  // namespace

void end_stray_engines(const std::string& directory, const std::set<EngineId>& known) {
  const Sockets sockets = sockets_in(directory);
  std::vector<UniqueFd> ended;
  std::error_code ignored;
  const auto processes =
      sockets.empty() ? fs::directory_iterator() : fs::directory_iterator("/proc", ignored);
  for (const auto& entry : processes) {
    const auto pid = number_of<pid_t>(entry.path().filename().string());
    const auto id = pid ? engine_of(*pid, sockets) : std::nullopt;
    if (!id || known.count(*id) != 0) continue;
    if (UniqueFd process = end_engine(*pid, *id, sockets)) ended.push_back(std::move(process));
  }
  wait_for(ended);
  remove_files(directory, known);
}

}  // namespace plexrl::engine
