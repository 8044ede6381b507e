// SPDX-License-Identifier: Apache-2.0
// Recent: the newest five of a series of times, and their median.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "core/byte_codec.h"

namespace plexrl::core {

class Recent {
 public:
  void learn(Duration value) {
    values_[next_] = std::max<std::int64_t>(value.ns, 0);
    next_ = static_cast<std::uint8_t>((next_ + 1) % kKept);
    if (count_ < kKept) ++count_;
  }
  [[nodiscard]] std::optional<Duration> median() const {
    if (count_ == 0) return std::nullopt;
    auto sorted = values_;
    std::sort(sorted.begin(), sorted.begin() + count_);
    return Duration{sorted[count_ / 2]};
  }

  void encode(ByteWriter& out) const {
    out.u8(count_);
    out.u8(next_);
    for (std::size_t n = 0; n < count_; ++n) out.varint(static_cast<std::uint64_t>(values_[n]));
  }
  void decode(ByteReader& in) {
    count_ = in.u8();
    next_ = in.u8();
    // Before it is full the next place is the first free one.
    if (count_ > kKept || next_ >= kKept || (count_ < kKept && next_ != count_)) {
      count_ = next_ = 0;
      return in.fail();
    }
    for (std::size_t n = 0; n < count_; ++n) values_[n] = decode_duration(in).ns;
  }

 private:
  static constexpr std::uint8_t kKept = 5;
  std::array<std::int64_t, kKept> values_{};
  std::uint8_t count_ = 0;
  std::uint8_t next_ = 0;
};

}  // namespace plexrl::core
