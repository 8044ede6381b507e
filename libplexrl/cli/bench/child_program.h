// SPDX-License-Identifier: Apache-2.0
// ChildProgram: a program that a benchmark starts. Its output goes to a file, which is quoted when
// it fails. It is killed when the object goes while it runs, and by Cleanup. One thread.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/bench/cleanup.h"

namespace plexrl::cli {

// `environment`: NAME=VALUE, in place of or beside those of this process.
[[nodiscard]] Result<pid_t> spawn_program(std::vector<std::string> words, const std::string& log,
                                          const std::vector<std::string>& environment = {});

class ChildProgram {
 public:
  [[nodiscard]] static Result<ChildProgram> start(std::vector<std::string> words,
                                                  const std::string& log,
                                                  const std::vector<std::string>& environment = {});
  ChildProgram(ChildProgram&&) = default;
  ChildProgram& operator=(ChildProgram&&) = delete;
  ~ChildProgram();

  // To its end, once. INTERNAL, with the end of its output, when it fails.
  [[nodiscard]] Status wait();

 private:
  ChildProgram(std::string name, std::string log);

  std::string name_;
  std::string log_;
  std::shared_ptr<pid_t> pid_;  // 0: it has ended; changed under Cleanup::hold()
  Cleanup cleanup_;
};

// To its end.
[[nodiscard]] Status run_program(std::vector<std::string> words, const std::string& log);

// The last of the file, as far as a message has room for it.
[[nodiscard]] std::string end_of(const std::string& log);

}  // namespace plexrl::cli
