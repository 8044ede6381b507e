// SPDX-License-Identifier: Apache-2.0
// TemporaryFolder: a folder of a benchmark's own, gone with the object and with a signal that ends
// the program (see Cleanup).
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "cli/bench/cleanup.h"

namespace plexrl::cli {

class TemporaryFolder {
 public:
  // In `directory`; empty: the system's for temporary files. IO says which one it was.
  [[nodiscard]] static Result<TemporaryFolder> make(std::string directory = "");
  [[nodiscard]] const std::string& path() const noexcept { return *path_; }

 private:
  TemporaryFolder();
  std::shared_ptr<std::string> path_;
  Cleanup cleanup_;
};

}  // namespace plexrl::cli
