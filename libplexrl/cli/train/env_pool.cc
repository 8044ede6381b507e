// SPDX-License-Identifier: Apache-2.0
#include "cli/train/env_pool.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace plexrl::cli {
namespace {

// Imports of large packages take long, most of all when many workers start at once.
constexpr Duration kStartLimit{60 * kSecond.ns};
constexpr Duration kEndLimit{5 * kSecond.ns};
constexpr int kMaxSweeps = 64;

int milliseconds_until(TimePoint deadline) {
  const std::int64_t left_ns = (deadline - system_clock().now()).ns;
  return static_cast<int>(std::clamp<std::int64_t>(left_ns / 1'000'000 + 1, 0, 60'000));
}

// The parent of a process; 0: not known.
pid_t parent_of(const char* pid) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
  std::FILE* const file = std::fopen(path, "re");
  if (file == nullptr) return 0;
  char line[512] = {};
  const std::size_t got = std::fread(line, 1, sizeof line - 1, file);
  std::fclose(file);
  // "pid (name) state parent ...", of which the name may hold anything.
  const std::size_t name_end = std::string_view(line, got).rfind(')');
  constexpr std::size_t kToParent = sizeof ") S" - 1;
  if (name_end == std::string_view::npos || name_end + kToParent >= got) return 0;
  return static_cast<pid_t>(std::strtol(line + name_end + kToParent, nullptr, 10));
}

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  DIR* const directory = ::opendir("/proc");
  if (directory == nullptr) return children;
  while (const dirent* entry = ::readdir(directory)) {
    const long pid = std::strtol(entry->d_name, nullptr, 10);
    if (pid > 0 && parent_of(entry->d_name) == parent) children.push_back(static_cast<pid_t>(pid));
  }
  ::closedir(directory);
  return children;
}

}  // namespace

EnvPool::EnvPool(std::string command, std::size_t workers, Duration turn_limit)
    : command_(std::move(command)), turn_limit_(turn_limit), places_(workers) {
  (void)::prctl(PR_GET_CHILD_SUBREAPER, &was_reaper_);
  (void)::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

EnvPool::~EnvPool() {
  for (Place& place : places_)
    if (place.worker != nullptr) {
      place.worker->send(R"({"op":"close"})");
      place.worker->close_input();
    }
  const TimePoint deadline = system_clock().now() + kEndLimit;
  for (Place& place : places_) {
    if (place.worker == nullptr) continue;
    pollfd fd = {place.worker->pidfd(), POLLIN, 0};
    if (system_clock().now() < deadline) (void)::poll(&fd, 1, milliseconds_until(deadline));
    place.worker.reset();
  }
  kill_strays();
  (void)::prctl(PR_SET_CHILD_SUBREAPER, was_reaper_);
}

// What left the group of a worker that is gone has become our child. What it leaves behind when it
// is killed does too, so look again until there is nothing.
void EnvPool::kill_strays() const {
  for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
    bool any = false;
    for (const pid_t child : children_of(::getpid())) {
      const bool ours = std::any_of(places_.begin(), places_.end(), [child](const Place& place) {
        return place.worker != nullptr && place.worker->pid() == child;
      });
      if (ours) continue;
      any = true;
      ::kill(child, SIGKILL);
      while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) continue;
    }
    if (!any) return;
  }
}

void EnvPool::drop(Place& place) {
  place = Place();
  kill_strays();
}

Status EnvPool::check() {
  const auto replies = exchange({{0, nlohmann::json()}});
  return replies.front().status();
}

void EnvPool::send(const nlohmann::json& body, Open& open) {
  nlohmann::json line = body;
  open.id = open.place->next_id++;
  line["id"] = open.id;
  const Duration limit = open.greeting ? std::max(kStartLimit, turn_limit_) : turn_limit_;
  open.deadline = system_clock().now() + limit;
  open.place->worker->send(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

Status EnvPool::begin(const Request& request, Open& open) {
  if (open.place->worker != nullptr && !request.body.is_null()) {
    send(request.body, open);
    return {};
  }
  PLEXRL_ASSIGN(open.place->worker, EnvWorker::start(command_));
  open.greeting = true;
  send({{"op", "hello"}, {"protocol", kProtocol}}, open);
  return {};
}

Result<std::optional<nlohmann::json>> EnvPool::look(const Request& request, Open& open) {
  PLEXRL_ASSIGN(const auto line, open.place->worker->pump());
  if (!line.has_value()) {
    if (system_clock().now() < open.deadline) return std::optional<nlohmann::json>();
    return error(Code::TIMEOUT, "it did not answer in time");
  }
  auto reply = nlohmann::json::parse(*line, nullptr, false);
  if (!reply.is_object())
    return error(Code::PROTOCOL, "it wrote '%s', which is not a JSON object",
                 printable(line->substr(0, 60)).c_str());
  if (reply.value("id", nlohmann::json()) != open.id)
    return error(Code::PROTOCOL, "it answers request %.40s, asked was %llu",
                 reply.value("id", nlohmann::json()).dump().c_str(),
                 static_cast<unsigned long long>(open.id));
  if (!open.greeting) return std::optional(std::move(reply));
  const auto version = reply.value("protocol", nlohmann::json());
  if (version != kProtocol)
    return error(Code::UNSUPPORTED, "it speaks version %.40s of the protocol, needed is %llu",
                 version.dump().c_str(), static_cast<unsigned long long>(kProtocol));
  open.greeting = false;
  if (request.body.is_null()) return std::optional(std::move(reply));
  send(request.body, open);
  return std::optional<nlohmann::json>();
}

void EnvPool::wait_for(const std::vector<Open>& open) const {
  std::vector<pollfd> fds;
  TimePoint first = open.front().deadline;
  for (const Open& one : open) {
    one.place->worker->add_to(fds);
    first = std::min(first, one.deadline);
  }
  (void)::poll(fds.data(), fds.size(), milliseconds_until(first));
}

std::vector<Result<nlohmann::json>> EnvPool::exchange(const std::vector<Request>& requests) {
  std::vector<Result<nlohmann::json>> replies(requests.size(), Result<nlohmann::json>(nullptr));
  std::vector<Open> open;
  const auto fail = [&](const Open& one, const Status& why) {
    Status status = why;
    if (one.place->worker != nullptr)
      if (const std::string text = one.place->worker->errors(); !text.empty())
        status = error(why.code(), "%s; the end of its standard error:\n%s", why.text().c_str(),
                       text.c_str());
    replies[one.index] =
        status.within("environment worker " + std::to_string(requests[one.index].worker));
    drop(*one.place);
  };
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Open one{.index = i, .place = &places_.at(requests[i].worker)};
    const Status begun = begin(requests[i], one);
    begun.ok() ? open.push_back(one) : fail(one, begun);
  }
  while (!open.empty()) {
    wait_for(open);
    std::vector<Open> still;
    for (Open& one : open) {
      auto reply = look(requests[one.index], one);
      if (!reply.has_value())
        fail(one, reply.error());
      else if (reply->has_value())
        replies[one.index] = std::move(**reply);
      else
        still.push_back(one);
    }
    open = std::move(still);
  }
  return replies;
}

}  // namespace plexrl::cli
