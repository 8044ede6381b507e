// SPDX-License-Identifier: Apache-2.0
// with_growing_buffer: how to call getpwuid_r, getgrnam_r and their like. The members of a group
// that holds a whole site need hundreds of KiB.
#pragma once

#include <cerrno>
#include <cstddef>
#include <vector>

namespace plexrl {

inline constexpr std::size_t kFirstNameBuffer = 64U << 10;
inline constexpr std::size_t kMaxNameBuffer = 16U << 20;

// Calls `int call(char* buffer, size_t size)` with a larger buffer as long as it answers ERANGE, up
// to kMaxNameBuffer. What the entry points to lies in the buffer.
template <class Call>
int with_growing_buffer(std::vector<char>* buffer, Call call) {
  if (buffer->empty()) buffer->resize(kFirstNameBuffer);
  while (true) {
    const int failure = call(buffer->data(), buffer->size());
    if (failure != ERANGE || buffer->size() * 2 > kMaxNameBuffer) return failure;
    buffer->resize(buffer->size() * 2);
  }
}

}  // namespace plexrl
