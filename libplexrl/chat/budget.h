// SPDX-License-Identifier: Apache-2.0
// Budget: how much work a template may still cause, in bytes that it reads or writes; a step of the
// evaluation counts as 64 of them and a member of a list as 128, which bounds time and memory.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace plexrl::chat {

class Budget {
 public:
  static constexpr std::uint64_t kStep = 64, kMember = 128;

  explicit Budget(std::uint64_t bytes) : left_(bytes) {}
  // INVALID_ARGUMENT: it is used up.
  [[nodiscard]] Status spend(std::uint64_t bytes) {
    if (bytes > left_) {
      left_ = 0;
      return error(Code::INVALID_ARGUMENT, "chat template: it takes too many steps");
    }
    left_ -= bytes;
    return {};
  }
  [[nodiscard]] Status step() { return spend(kStep); }
  [[nodiscard]] Status members(std::uint64_t count) {
    return spend(count > UINT32_MAX ? UINT64_MAX : count * kMember);
  }
  // `bytes` are looked through for `part` others, which may compare many of them at each place.
  [[nodiscard]] Status search(std::uint64_t bytes, std::uint64_t part) {
    return spend(bytes * (1 + part / kStep));
  }

 private:
  std::uint64_t left_;
};

}  // namespace plexrl::chat
