// SPDX-License-Identifier: Apache-2.0
// Checker: what a test needs where GoogleTest is not installed. A failed check is noted with its
// place and the test goes on; PLEXRL_NEED ends the test. One thread at a time.
#pragma once

#include <string>
#include <vector>

namespace plexrl::check {

class Checker {
 public:
  bool note(bool good, const char* file, int line, const std::string& what) {
    if (!good) failures_.push_back(std::string(file) + ":" + std::to_string(line) + ": " + what);
    return good;
  }
  [[nodiscard]] const std::vector<std::string>& failures() const { return failures_; }

 private:
  std::vector<std::string> failures_;
};

// Text of a Status, empty when it is ok.
template <class StatusT>
std::string why(const StatusT& status) {
  return status.ok() ? std::string() : status.to_string();
}

}  // namespace plexrl::check

// All are for functions with a parameter `check`.
#define PLEXRL_EXPECT(condition) check.note((condition), __FILE__, __LINE__, #condition)
#define PLEXRL_NEED(condition) \
  if (!PLEXRL_EXPECT(condition)) return
#define PLEXRL_EXPECT_OK(status)                                                           \
  [&](const auto& s) {                                                                     \
    return check.note(s.ok(), __FILE__, __LINE__, #status ": " + ::plexrl::check::why(s)); \
  }(status)
#define PLEXRL_NEED_OK(status) \
  if (!PLEXRL_EXPECT_OK(status)) return
