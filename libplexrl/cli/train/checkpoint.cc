// SPDX-License-Identifier: Apache-2.0
#include "cli/train/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace plexrl::cli {
namespace {

// A rollout in it has some 20 bytes per token.
constexpr std::size_t kMaxStateBytes = 512U << 20;

std::string text_of(const nlohmann::json& document, const char* name) {
  const auto found = document.find(name);
  return found != document.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// Not what could not be read again.
Status write_document(const std::string& path, const nlohmann::json& document) {
  const std::string text = document.dump() + "\n";
  if (text.size() > kMaxStateBytes)
    return error(Code::TOO_LARGE,
                 "'%s': a rollout of %zu MiB is more than the %zu that are kept; ask for fewer "
                 "answers a step, or give --max-staleness 0",
                 path.c_str(), text.size() >> 20, kMaxStateBytes >> 20);
  return write_atomically(path, text);
}

}  // namespace

std::string Checkpoint::model_name(const TrainState& state) const {
  return std::filesystem::path(path_).filename().string() + "." +
         std::to_string(state.sft_done + state.grpo_done) + ".safetensors";
}

Result<nlohmann::json> Checkpoint::read_json(const std::string& path) const {
  PLEXRL_ASSIGN(const std::string text, read_file(path, kMaxStateBytes));
  auto document = nlohmann::json::parse(text, nullptr, false);
  if (!document.is_object() || !document.contains("state") || !document.contains("run"))
    return error(Code::CORRUPT, "'%s' is not a checkpoint of plexrl train", path.c_str());
  PLEXRL_TRY(same_run(document["run"], run_).within("checkpoint '" + path + "'"));
  return document;
}

Result<Checkpoint::Loaded> Checkpoint::read() const {
  PLEXRL_ASSIGN(const auto document, read_json(path_));
  Loaded loaded;
  auto state = state_from_json(document["state"]);
  if (!state.has_value()) return state.error().within("checkpoint '" + path_ + "'");
  loaded.state = *state;
  // Only a plain name beside FILE: a checkpoint must not make us open other files.
  const std::string name = text_of(document, "model_file");
  if (name.empty() || name.find('/') != name.npos)
    return error(Code::CORRUPT, "checkpoint '%s': 'model_file' is not a file name", path_.c_str());
  const auto path = std::filesystem::path(path_).parent_path() / name;
  loaded.model.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!loaded.model)
    return errno_error(Code::NOT_FOUND, errno, "checkpoint: open '%s'", path.c_str());
  loaded.sha256 = text_of(document, "sha256");
  return loaded;
}

Result<PendingFile> Checkpoint::create_model(const TrainState& state) const {
  return PendingFile::create(
      (std::filesystem::path(path_).parent_path() / model_name(state)).string());
}

Status Checkpoint::commit(PendingFile& model, const TrainState& state, const std::string& sha256) {
  std::string old;
  if (exists()) {
    const auto document = read_json(path_);
    if (document.has_value()) old = text_of(*document, "model_file");
  }
  PLEXRL_TRY(model.publish());
  const std::string name = model_name(state);
  const nlohmann::json document = {
      {"run", run_}, {"state", to_json(state)}, {"model_file", name}, {"sha256", sha256}};
  PLEXRL_TRY(write_document(path_, document));
  if (!old.empty() && old != name && old.find('/') == old.npos)
    ::unlink((std::filesystem::path(path_).parent_path() / old).c_str());
  return {};
}

Status Checkpoint::write_journal(const TrainState& state, std::uint64_t model,
                                 std::uint64_t first_seq) const {
  if (!wanted()) return {};
  const nlohmann::json document = {
      {"run", run_}, {"state", to_json(state)}, {"model", model}, {"first_seq", first_seq}};
  return write_document(path_ + ".journal", document);
}

Result<std::optional<RunPosition>> Checkpoint::read_journal(std::uint64_t model) const {
  const std::string path = path_ + ".journal";
  if (!wanted() || !file_exists(path)) return std::optional<RunPosition>();
  PLEXRL_ASSIGN(const auto document, read_json(path));
  if (document.value("model", nlohmann::json()) != model) return std::optional<RunPosition>();
  RunPosition position;
  PLEXRL_ASSIGN(position.state, state_from_json(document["state"]));
  const auto first_seq = document.value("first_seq", nlohmann::json());
  if (!first_seq.is_number_unsigned())
    return error(Code::CORRUPT, "'%s': 'first_seq' is missing", path.c_str());
  position.first_seq = first_seq.get<std::uint64_t>();
  return std::optional<RunPosition>(std::move(position));
}

}  // namespace plexrl::cli
