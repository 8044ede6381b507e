// SPDX-License-Identifier: Apache-2.0
// ControllerReport: which site file and which profiles the job_submit hook of a controller has
// read, noted in StateSaveLocation, which the controllers of a cluster share. `plexrl config check
// --controller` compares the notes.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace plexrl::slurm {

struct FileSeen {
  std::string hash;     // file_hash(); empty: there was no file, or it could not be read
  std::string problem;  // one line; empty: all is well
  friend bool operator==(const FileSeen&, const FileSeen&) = default;
};

struct ControllerReport {
  std::string host;  // as gethostname(2) says, up to the first dot
  FileSeen site;
  FileSeen profiles;
  friend bool operator==(const ControllerReport&, const ControllerReport&) = default;
};

// 16 hexadecimal digits that differ when the files do; no protection against forgery. NOT_FOUND,
// IO.
[[nodiscard]] Result<std::string> file_hash(const std::string& path);
[[nodiscard]] std::string controller_host();

[[nodiscard]] Status write_report(const std::string& state_dir, const ControllerReport& report);
// In order of hosts. IO: the directory cannot be read. CORRUPT names a file that is no report.
[[nodiscard]] Result<std::vector<ControllerReport>> read_reports(const std::string& state_dir);

}  // namespace plexrl::slurm
