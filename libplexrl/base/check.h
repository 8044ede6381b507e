// SPDX-License-Identifier: Apache-2.0
// PLEXRL_CHECK(condition, text): a broken invariant of our own aborts with context, in every build.
// Never used on data from a peer, a file or a user.
#pragma once

namespace plexrl {
[[noreturn]] void check_failed(const char* condition, const char* text, const char* file,
                               int line) noexcept;
}  // namespace plexrl

#define PLEXRL_CHECK(condition, text)                  \
  (static_cast<bool>(condition) ? static_cast<void>(0) \
                                : ::plexrl::check_failed(#condition, (text), __FILE__, __LINE__))
