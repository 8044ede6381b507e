// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/cleanup.h"

#include <signal.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <system_error>
#include <thread>

namespace plexrl::cli {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::uint64_t, std::function<void()>> undos;
  std::uint64_t last = 0;
  bool catching = false;
  sigset_t caught{};
};

// Never destroyed: the thread of the signals outlives main.
Registry& registry() {
  static auto* const all = new Registry;
  return *all;
}

// But those that are ignored, as by nohup: they would not end the program.
sigset_t ending_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now {};
    if (::sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN)
      ::sigaddset(&set, signal);
  }
  return set;
}

// Holds the lock to the end, so that nothing new is made and no destructor lets main return first.
void wait_for_the_end() {
  const sigset_t set = registry().caught;
  int signal = 0;
  while (::sigwait(&set, &signal) != 0) {
  }
  const auto lock = Cleanup::hold();
  auto& undos = registry().undos;
  for (auto undo = undos.rbegin(); undo != undos.rend(); ++undo) undo->second();
  ::signal(signal, SIG_DFL);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  ::raise(signal);
}

}  // namespace

std::unique_lock<std::mutex> Cleanup::hold() { return std::unique_lock(registry().mutex); }

Status Cleanup::catch_signals() {
  const auto lock = hold();
  if (std::exchange(registry().catching, true)) return {};
  registry().caught = ending_signals();
  if (const int failed = ::pthread_sigmask(SIG_BLOCK, &registry().caught, nullptr); failed != 0)
    return errno_error(Code::IO, failed, "block signals");
  std::thread(wait_for_the_end).detach();
  return {};
}

void remove_folder(const std::string& path) {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    std::error_code failure;
    std::filesystem::remove_all(path, failure);
    if (!failure) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

Cleanup::Cleanup(std::function<void()> undo) {
  const auto lock = hold();
  number_ = ++registry().last;
  registry().undos.emplace(number_, std::move(undo));
}

Cleanup::~Cleanup() {
  if (number_ == 0) return;
  const auto lock = hold();
  const auto undo = registry().undos.extract(number_);
  undo.mapped()();
}

}  // namespace plexrl::cli
