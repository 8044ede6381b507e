// SPDX-License-Identifier: Apache-2.0
// What a crash left in a spare file: a whole blob that had not got its name yet, or a part of one.
#pragma once

#include "base/strong_id.h"
#include "store/blob_store.h"

namespace plexrl::store {

// The blob that the file holds, every chunk as its footer says; none when it is not whole. Reads
// all of it. A chunk that the disk cannot read counts as whole: whoever reads the blob is told.
[[nodiscard]] BlobId whole_blob_in(int fd, std::uint64_t file_bytes);

}  // namespace plexrl::store
