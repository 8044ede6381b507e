// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/temporary_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

namespace plexrl::cli {

TemporaryFolder::TemporaryFolder()
    : path_(std::make_shared<std::string>()), cleanup_([path = path_] {
        if (!path->empty()) remove_folder(*path);
      }) {}

Result<TemporaryFolder> TemporaryFolder::make(std::string directory) {
  std::error_code failure;
  if (directory.empty()) directory = std::filesystem::temp_directory_path(failure).string();
  TemporaryFolder folder;
  std::string name = directory + "/plexrl-bench-XXXXXX";
  const auto hold = Cleanup::hold();
  if (::mkdtemp(name.data()) == nullptr)
    return errno_error(Code::IO, errno, "make a folder in '%s'", directory.c_str());
  *folder.path_ = name;
  return folder;
}

}  // namespace plexrl::cli
