// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/activation_arena.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

namespace plexrl::model {
namespace {

constexpr std::size_t kAlign = 64;
constexpr std::size_t kPage = 4096;
using Ranges = std::map<std::size_t, std::size_t>;

ActivationArena* g_installed = nullptr;  // set once, before the first thread that reads it

// Adds [offset, offset + bytes) and merges it with what touches or overlaps it.
void insert_merged(Ranges* ranges, std::size_t offset, std::size_t bytes) {
  std::size_t end = offset + bytes;
  auto it = ranges->upper_bound(offset);
  if (it != ranges->begin() && std::prev(it)->first + std::prev(it)->second >= offset) --it;
  while (it != ranges->end() && it->first <= end) {
    offset = std::min(offset, it->first);
    end = std::max(end, it->first + it->second);
    it = ranges->erase(it);
  }
  ranges->emplace(offset, end - offset);
}

}  // namespace

Result<std::unique_ptr<ActivationArena>> ActivationArena::create(std::size_t bytes) {
  if (bytes > SIZE_MAX - kPage) return error(Code::NO_CAPACITY, "activation arena: size overflows");
  bytes = (bytes + kPage - 1) / kPage * kPage;
  if (bytes == 0) return error(Code::INVALID_ARGUMENT, "activation arena: needs at least one byte");
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED)
    return errno_error(Code::NO_CAPACITY, errno, "activation arena: map %zu bytes", bytes);
  return std::unique_ptr<ActivationArena>(
      new ActivationArena(static_cast<std::byte*>(memory), bytes));
}

ActivationArena::ActivationArena(std::byte* memory, std::size_t bytes)
    : memory_(memory), capacity_(bytes) {
  free_.emplace(0, bytes);
}

ActivationArena::~ActivationArena() { ::munmap(memory_, capacity_); }

void* ActivationArena::allocate(std::size_t bytes) noexcept {
  if (bytes == 0) return nullptr;
  const std::lock_guard lock(mutex_);
  const std::size_t need = bytes > capacity_ ? SIZE_MAX : (bytes + kAlign - 1) / kAlign * kAlign;
  auto it = free_.begin();
  while (it != free_.end() && it->second < need) ++it;  // lowest address first: keeps it compact
  if (it == free_.end()) {
    ++refused_;
    return nullptr;
  }
  const std::size_t offset = it->first;
  const std::size_t rest = it->second - need;
  free_.erase(it);
  if (rest > 0) free_.emplace(offset + need, rest);
  used_.emplace(offset, need);
  insert_merged(&dirty_, offset, need);
  used_bytes_ += need;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
  return memory_ + offset;
}

void ActivationArena::release(void* block) noexcept {
  if (block == nullptr) return;
  const std::lock_guard lock(mutex_);
  const auto it = used_.find(static_cast<std::size_t>(static_cast<std::byte*>(block) - memory_));
  PLEXRL_CHECK(it != used_.end(), "activation arena: released a block that is not in use");
  used_bytes_ -= it->second;
  insert_merged(&free_, it->first, it->second);
  used_.erase(it);
}

void ActivationArena::zero_used() noexcept {
  const std::lock_guard lock(mutex_);
  for (const auto& [offset, bytes] : dirty_) {
    std::size_t at = offset;
    for (auto live = used_.lower_bound(offset); live != used_.end() && live->first < offset + bytes;
         ++live) {
      std::memset(memory_ + at, 0, live->first - at);
      at = live->first + live->second;
    }
    std::memset(memory_ + at, 0, offset + bytes - at);
  }
  dirty_.clear();
  for (const auto& [offset, bytes] : used_) insert_merged(&dirty_, offset, bytes);
}

ActivationArena::Stats ActivationArena::stats() const noexcept {
  const std::lock_guard lock(mutex_);
  return {capacity_, used_bytes_, peak_bytes_, refused_};
}

ActivationArena* ActivationArena::installed() noexcept { return g_installed; }

void ActivationArena::set_installed(std::unique_ptr<ActivationArena> arena) noexcept {
  PLEXRL_CHECK(g_installed == nullptr, "activation arena: installed twice");
  g_installed = arena.release();
}

}  // namespace plexrl::model
