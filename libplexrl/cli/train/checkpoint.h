// SPDX-License-Identifier: Apache-2.0
// Checkpoint of a training run, three files:
//   FILE                 JSON: controller state and the name of the model file; replaced atomically
//   FILE.STEP.safetensors  the model: weights, optimizer moments, step (bit exact)
//   FILE.journal         JSON, rewritten before every step: controller state, the service's model
//   id and
//                        the number of the step's first op; lets a requeued job go on inside a step
// A model file that FILE does not name is left over from a crash and is removed by the next commit.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "cli/train/file_io.h"
#include "cli/train/train_state.h"

namespace plexrl::cli {

class Checkpoint {
 public:
  // An empty path: no checkpoint; exists() is false and the journal is not written.
  Checkpoint(std::string path, nlohmann::json run) : path_(std::move(path)), run_(std::move(run)) {}

  [[nodiscard]] bool wanted() const { return !path_.empty(); }
  [[nodiscard]] bool exists() const { return wanted() && file_exists(path_); }

  struct Loaded {
    TrainState state;
    UniqueFd model;  // open for reading
    std::string sha256;
  };
  // INVALID_ARGUMENT when it belongs to a run with other options, CORRUPT, NOT_FOUND.
  [[nodiscard]] Result<Loaded> read() const;

  // First the model is written into the pending file, then commit makes both valid.
  [[nodiscard]] Result<PendingFile> create_model(const TrainState& state) const;
  [[nodiscard]] Status commit(PendingFile& model, const TrainState& state,
                              const std::string& sha256);

  [[nodiscard]] Status write_journal(const TrainState& state, std::uint64_t model,
                                     std::uint64_t first_seq) const;
  // Nothing when there is no journal or it is about another model.
  [[nodiscard]] Result<std::optional<RunPosition>> read_journal(std::uint64_t model) const;

 private:
  [[nodiscard]] std::string model_name(const TrainState& state) const;
  [[nodiscard]] Result<nlohmann::json> read_json(const std::string& path) const;

  std::string path_;
  nlohmann::json run_;
};

}  // namespace plexrl::cli
