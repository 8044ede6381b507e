// SPDX-License-Identifier: Apache-2.0
// fault_point.so: preloaded into plexrld or plexrl-engine by a test, kills the process (SIGKILL to
// itself) at a named point of the engine protocol. No product code knows of it.
//
// $PLEXRL_FAULT_FILE names a file that holds one line, the point at which to die. The process that
// reaches the point removes the file first, so that a point is hit once and the test can see that
// it was. Points, where KIND is resume, fill (EngineAwaitFill: the moments are coming in), suspend,
// commit, publish, optim_step, forward_backward, generate, forget or drop:
//   received KIND   the request has come and nothing was done (engine)
//   mapped N KIND   at the Nth map or unmap of chunks after that, in the middle of it (engine)
//   answering KIND  the work is done and the answer is not sent (engine)
//   asking KIND     the request is not sent (plexrld)
//   asked KIND      the request is sent (plexrld)
//   answered KIND   the answer has come and was not looked at (plexrld)
// With $PLEXRL_FAULT_LARGEST_RANGE (bytes) there is no address space for larger ranges, so that an
// engine maps host chunks in every move and not all of them once.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine_generated.h"
#include "wire/frame.h"

namespace {

using namespace plexrl;  // NOLINT(google-build-using-namespace): one file, one purpose
using Bytes = std::vector<std::uint8_t>;

template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

bool too_large(std::size_t size) {
  static const char* const limit = std::getenv("PLEXRL_FAULT_LARGEST_RANGE");
  return limit != nullptr && size > std::strtoull(limit, nullptr, 10);
}

// Dies when the file names this point.
void reach(const std::string& point) {
  const char* const path = std::getenv("PLEXRL_FAULT_FILE");
  if (path == nullptr) return;
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  std::array<char, 128> text{};
  const ssize_t size = ::read(fd, text.data(), text.size());
  ::syscall(SYS_close, fd);  // close() below takes the lock that is held here
  std::string_view wanted(text.data(), size < 0 ? 0 : static_cast<std::size_t>(size));
  wanted = wanted.substr(0, wanted.find('\n'));
  if (wanted == point && ::unlink(path) == 0) ::kill(::getpid(), SIGKILL);
}

std::string kind_of_op(const wire::EngineRunOp& run) {
  if (run.args_as_GenerateArgs() != nullptr) return "generate";
  if (run.args_as_ForwardBackwardArgs() != nullptr) return "forward_backward";
  if (run.args_as_OptimStepArgs() != nullptr) return "optim_step";
  const auto* const save = run.args_as_SaveArgs();
  return save != nullptr && save->target() == wire::SaveTarget::Sampler ? "publish" : "";
}

// Of a request; empty for everything that no test waits for.
std::string kind_of(const wire::EngineMessage& message) {
  if (message.body_as_EngineResume() != nullptr) return "resume";
  if (message.body_as_EngineAwaitFill() != nullptr) return "fill";
  if (message.body_as_EngineSuspend() != nullptr) return "suspend";
  if (message.body_as_EngineCommit() != nullptr) return "commit";
  if (message.body_as_EngineForget() != nullptr) return "forget";
  if (message.body_as_EngineDropOp() != nullptr) return "drop";
  const auto* const run = message.body_as_EngineRunOp();
  return run != nullptr ? kind_of_op(*run) : "";
}

// The frames that are complete in `stream` are cut off its front.
std::vector<Bytes> take_payloads(Bytes& stream) {
  std::vector<Bytes> payloads;
  while (stream.size() >= wire::kHeaderBytes) {
    std::uint32_t magic = 0;
    std::uint32_t size = 0;
    std::memcpy(&magic, stream.data(), sizeof magic);
    std::memcpy(&size, stream.data() + 8, sizeof size);
    if (magic != wire::kFrameMagic) {  // some other socket
      stream.clear();
      break;
    }
    const auto end = static_cast<std::ptrdiff_t>(wire::kHeaderBytes + size);
    if (stream.size() < static_cast<std::size_t>(end)) break;
    payloads.emplace_back(stream.begin() + wire::kHeaderBytes, stream.begin() + end);
    stream.erase(stream.begin(), stream.begin() + end);
  }
  return payloads;
}

// What is known of the process's sockets. Never destroyed: threads run until the end.
class Watch {
 public:
  static Watch& get() {
    static Watch* const watch = new Watch;
    return *watch;
  }

  void received(int fd, const Bytes& bytes) {
    const std::scoped_lock lock(mutex_);
    Bytes& stream = in_[fd];
    stream.insert(stream.end(), bytes.begin(), bytes.end());
    for (const Bytes& payload : take_payloads(stream)) note(fd, payload, "received ", "answered ");
  }
  // Before the call: what would be sent. A frame that goes out in parts is named at each.
  void sending(int fd, const Bytes& bytes) {
    const std::scoped_lock lock(mutex_);
    Bytes stream = out_[fd];
    stream.insert(stream.end(), bytes.begin(), bytes.end());
    for (const Bytes& payload : take_payloads(stream)) note(fd, payload, "asking ", "answering ");
  }
  void sent(int fd, const Bytes& bytes) {
    const std::scoped_lock lock(mutex_);
    Bytes& stream = out_[fd];
    stream.insert(stream.end(), bytes.begin(), bytes.end());
    for (const Bytes& payload : take_payloads(stream)) note(fd, payload, "asked ", "");
  }
  void mapped() {
    if (!working_) return;
    const std::scoped_lock lock(mutex_);
    if (!work_.empty()) reach("mapped " + std::to_string(++maps_) + " " + work_);
  }
  void closed(int fd) {
    const std::scoped_lock lock(mutex_);
    in_.erase(fd);
    out_.erase(fd);
    std::erase_if(asked_, [&](const auto& entry) { return entry.first.first == fd; });
  }

 private:
  void note(int fd, const Bytes& payload, const std::string& request, const std::string& answer) {
    if (!wire::EngineMessageBufferHasIdentifier(payload.data())) return;
    const wire::EngineMessage& message = *wire::GetEngineMessage(payload.data());
    const std::pair key{fd, message.request_id()};
    if (const std::string kind = kind_of(message); !kind.empty()) {
      asked_[key] = kind;
      if (request == "received ") begin_work(kind);
      return reach(request + kind);
    }
    const auto found = asked_.find(key);
    if (found == asked_.end() || answer.empty()) return;
    working_ = false;
    reach(answer + found->second);
    if (answer == "answered ") asked_.erase(found);
  }
  void begin_work(const std::string& kind) {
    work_ = kind;
    maps_ = 0;
    working_ = true;
  }

  std::mutex mutex_;
  std::map<int, Bytes> in_;
  std::map<int, Bytes> out_;
  std::map<std::pair<int, std::uint64_t>, std::string> asked_;
  std::string work_;
  int maps_ = 0;
  std::atomic<bool> working_ = false;
};

Bytes gather(const msghdr& message, std::size_t limit) {
  Bytes bytes;
  for (std::size_t i = 0; i < message.msg_iovlen && bytes.size() < limit; ++i) {
    const iovec& part = message.msg_iov[i];
    const auto* const data = static_cast<const std::uint8_t*>(part.iov_base);
    bytes.insert(bytes.end(), data, data + std::min(part.iov_len, limit - bytes.size()));
  }
  return bytes;
}

}  // namespace

extern "C" {

ssize_t recvmsg(int fd, msghdr* message, int flags) {
  static auto* const call = real<ssize_t(int, msghdr*, int)>("recvmsg");
  const ssize_t size = call(fd, message, flags);
  if (size > 0) Watch::get().received(fd, gather(*message, static_cast<std::size_t>(size)));
  return size;
}

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  static auto* const call = real<ssize_t(int, const msghdr*, int)>("sendmsg");
  Watch::get().sending(fd, gather(*message, SIZE_MAX));
  const ssize_t size = call(fd, message, flags);
  if (size > 0) Watch::get().sent(fd, gather(*message, static_cast<std::size_t>(size)));
  return size;
}

void* mmap(void* where, size_t size, int protection, int flags, int fd, off_t offset) noexcept {
  static auto* const call = real<void*(void*, size_t, int, int, int, off_t)>("mmap");
  if (fd < 0 && protection == PROT_NONE && too_large(size)) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  void* const mapped = call(where, size, protection, flags, fd, offset);
  // Chunks of the pools only: the allocator maps too, and holds its lock then.
  if (fd >= 0 || (flags & MAP_FIXED) != 0) Watch::get().mapped();
  return mapped;
}

int close(int fd) {
  static auto* const call = real<int(int)>("close");
  Watch::get().closed(fd);
  return call(fd);
}

}  // extern "C"
