// SPDX-License-Identifier: Apache-2.0
// Import of a model directory in Hugging Face layout: its files, and no others, are copied or
// linked, each with its checksum. Any thread; blocks.
//
// Resuming: NAME.partial holds finished files, whose sizes, times and checksums are in
// plexrl-import.json there, and at most one FILE.part. A finished file whose source has not changed
// is not read again; of a .part the source is read from its begin, and what is there already and is
// equal is not written again. config.json comes last, so that what is not whole has none.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace plexrl::model {

struct HfImport {
  std::string from;
  std::string to;  // EXISTS when it is there; its parent must exist
  bool link =
      false;  // hard links to the weights instead of copies; others may not change them then
};

struct ImportedFiles {
  std::vector<std::string> files;
  std::vector<std::string> left_out;  // of the source: no part of a model as we read it
  std::uint64_t bytes = 0;
  std::uint64_t resumed_bytes = 0;  // of these were there already
};

// Bytes that are done and all; false ends the import with CANCELLED.
using FileProgress = std::function<bool(std::uint64_t done, std::uint64_t all)>;
// Of the directory before it gets its name.
using DirectoryCheck = std::function<Status(const std::string& dir)>;

// NOT_FOUND: no such directory, or without config.json or weights; CORRUPT: a source file changed
// while it was read; BUSY: another import; IO: what the system said, a full disk too; what `check`
// says. After CANCELLED, IO or a crash the same call goes on from there.
[[nodiscard]] Result<ImportedFiles> import_hf(const HfImport& import, const FileProgress& progress,
                                              const DirectoryCheck& check);

}  // namespace plexrl::model
