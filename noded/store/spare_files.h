// SPDX-License-Identifier: Apache-2.0
// SpareFiles: empty files that wait to be blobs. The directory was synced after they were made, so
// what is written into one and synced survives a crash under the spare's name, and giving it the
// blob's name needs no sync. A blob thus costs one sync, and every kSpareFiles one more, which is
// paid while nothing else is written. One thread at a time.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace plexrl::store {

class SpareFiles {
 public:
  static constexpr std::size_t kSpareFiles = 16;

  struct File {
    std::string name;
    UniqueFd fd;  // to write to
  };

  // `directory` is borrowed. `found`: empty spares that lie in it. Makes those that are missing and
  // syncs the directory; on an error (as of take) there are none, and take() tries again.
  [[nodiscard]] Status open(int directory, bool direct, std::vector<std::string> found);
  // One that is nobody's any more: the caller renames or removes it. NO_CAPACITY: the disk is full.
  // IO: what the operating system said.
  [[nodiscard]] Result<File> take();
  // When few are left. What fails is logged, and told by the take() that finds none.
  void refill();

 private:
  [[nodiscard]] Status make();

  int directory_ = -1;
  bool direct_ = false;
  std::vector<std::string> names_;
  std::uint64_t last_ = 0;
};

}  // namespace plexrl::store
