// SPDX-License-Identifier: Apache-2.0
// EventFile: scalars in TensorBoard's format, which is records of TFRecord framing, each an Event
// of protocol buffers (event.proto and summary.proto of TensorBoard, version "brain.Event:2"). One
// thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace plexrl::cli {

using Scalars = std::vector<std::pair<std::string, double>>;

class EventFile {
 public:
  // A new file in `directory`, which is made when it is missing. `resumed`: the first scalars take
  // the place of what earlier files of the directory hold from that step on.
  [[nodiscard]] static Result<EventFile> create(const std::string& directory, bool resumed);

  // `wall_s`: seconds since 1970.
  [[nodiscard]] Status write(std::uint64_t step, double wall_s, const Scalars& scalars);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  [[nodiscard]] Status append(std::string_view event);

  std::unique_ptr<std::FILE, Close> file_;
  std::string path_;
  bool resumed_ = false;
};

}  // namespace plexrl::cli
