// SPDX-License-Identifier: Apache-2.0
// CheckpointStore: checkpoints that users keep with the service, <dir>/<uid>/<name>, with a quota
// per uid. A save goes to a temporary file that the engine writes through an fd and syncs; finish()
// makes it the checkpoint: fsync (nothing is left to write), rename, fsync of the folder. A
// checkpoint that a model was loaded from can be held: a second link keeps the file as it was,
// whatever becomes of the name. Names are checked by the caller (valid_name); a uid sees its own
// folder only. Loop thread only.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/strong_id.h"
#include "base/unique_fd.h"

namespace plexrl::runtime {

class CheckpointStore {
 public:
  CheckpointStore(std::string dir, std::uint64_t quota_bytes)
      : dir_(std::move(dir)), quota_bytes_(quota_bytes) {}

  // Creates the folder and removes temporary files of an earlier plexrld; holds stay.
  [[nodiscard]] Status open();
  // A temporary file for `name`. NO_CAPACITY when the uid's quota is used up already.
  struct Draft {
    UniqueFd fd;
    std::string path;
    std::string target;
    std::uint32_t uid = 0;
  };
  [[nodiscard]] Result<Draft> begin(std::uint32_t uid, const std::string& name);
  // NO_CAPACITY when the file is too large for the quota (a replaced one counts no more). The draft
  // is gone in any case.
  [[nodiscard]] Status finish(Draft draft);
  void discard(Draft draft);
  // NOT_FOUND names the checkpoint.
  [[nodiscard]] Result<UniqueFd> read(std::uint32_t uid, const std::string& name) const;
  // The file is the holder's until let_go(); it counts for the quota when its name is gone. A
  // second call for the holder changes nothing.
  struct Holder {
    ModelId model;
    std::uint64_t seq = 0;  // of the load
    friend auto operator<=>(const Holder&, const Holder&) = default;
  };
  [[nodiscard]] Status hold(std::uint32_t uid, const std::string& name, const Holder& holder);
  [[nodiscard]] Result<UniqueFd> read_held(std::uint32_t uid, const Holder& holder) const;
  void let_go(std::uint32_t uid, const Holder& holder);
  [[nodiscard]] std::map<Holder, std::uint32_t> holds() const;  // with the uid; of all
  [[nodiscard]] std::uint64_t used_bytes(std::uint32_t uid) const;

  // A short text beside the checkpoint of that name, which may not be there yet. It stays until
  // another one is written or the checkpoint is removed.
  [[nodiscard]] Status describe(std::uint32_t uid, const std::string& name,
                                const std::string& text);
  struct Described {
    std::string name, text;
    std::uint64_t bytes = 0;
    std::int64_t saved_s = 0;  // Unix time
  };
  // NOT_FOUND: there is no such checkpoint, or it has no text.
  [[nodiscard]] Result<Described> described(std::uint32_t uid, const std::string& name) const;
  // All of the uid whose names begin so, the newest first.
  [[nodiscard]] std::vector<Described> all_described(std::uint32_t uid,
                                                     const std::string& prefix) const;
  // NOT_FOUND names the checkpoint. Who holds it keeps it.
  [[nodiscard]] Status remove(std::uint32_t uid, const std::string& name);

 private:
  [[nodiscard]] std::string folder(std::uint32_t uid) const;
  [[nodiscard]] std::string held_path(std::uint32_t uid, const Holder& holder) const;
  std::string dir_;
  std::uint64_t quota_bytes_;
  std::uint64_t next_draft_ = 1;
};

}  // namespace plexrl::runtime
