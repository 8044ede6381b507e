// SPDX-License-Identifier: Apache-2.0
#include "config/device_files.h"

#include <glob.h>
#include <sys/stat.h>

#include <cerrno>

namespace plexrl::config {

std::vector<std::string> find_device_files(const std::string& pattern) {
  std::vector<std::string> paths;
  glob_t found{};
  if (!pattern.empty() && ::glob(pattern.c_str(), 0, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  // A directory (as /dev/nvidia-caps) is none.
  std::erase_if(paths, [](const std::string& path) {
    struct stat info {};
    return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  });
  return paths;
}

Status check_device_files(const std::string& pattern) {
  for (const std::string& path : find_device_files(pattern)) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0)
      return errno_error(Code::IO, errno, "device file '%s'", path.c_str());
    if ((info.st_mode & S_IRWXO) != 0)
      return error(Code::PERMISSION,
                   "device file '%s' is open to everybody (mode %03o): jobs could use the device "
                   "without a lease; chmod 0660 and chgrp it to plexrld's group, by a udev rule",
                   path.c_str(), static_cast<unsigned>(info.st_mode & 0777));
  }
  return {};
}

}  // namespace plexrl::config
