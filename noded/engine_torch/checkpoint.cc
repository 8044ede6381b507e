// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/checkpoint.h"

#include <openssl/evp.h>

#include <algorithm>
#include <memory>
#include <set>

#include "models/safetensors.h"

namespace plexrl::model {
namespace {

constexpr const char* kPrefixM = "plexrl.adam_m.";
constexpr const char* kPrefixV = "plexrl.adam_v.";
constexpr const char* kStep = "plexrl.step";

void add_arena(const ArenaLayout& layout, const char* prefix, std::span<const float> arena,
               std::vector<TensorToWrite>* out) {
  for (const TensorSlot& slot : layout.slots)
    out->push_back({prefix + slot.name, DType::kF32, slot.shape(), arena.data() + slot.offset,
                    slot.elements() * sizeof(float)});
}

std::map<std::string, std::string> metadata_of(const ModelLayout& layout) {
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
  const bool lora = layout.mode == wire::TrainMode::Lora;
  metadata["plexrl_mode"] = lora ? "lora" : "full";
  if (!lora) return metadata;
  metadata["plexrl_rank"] = std::to_string(layout.lora_rank);
  metadata["plexrl_alpha"] = std::to_string(static_cast<int>(kLoraAlpha));
  return metadata;
}

Status check_metadata(const SafetensorsFile& file, const ModelLayout& layout) {
  for (const auto& [key, want] : metadata_of(layout)) {
    const auto it = file.metadata().find(key);
    if (key == "format" || it == file.metadata().end() || it->second == want) continue;
    return error(Code::INVALID_ARGUMENT, "the file has %s %s, the model has %s", key.c_str(),
                 it->second.substr(0, 32).c_str(), want.c_str());
  }
  return {};
}

Status check_arena(const SafetensorsFile& file, const ArenaLayout& layout, const char* prefix) {
  for (const TensorSlot& slot : layout.slots)
    PLEXRL_TRY(file.check(prefix + slot.name, slot.shape()));
  return {};
}

// A tensor that we would not use means that the file is for another model.
Status check_known(const SafetensorsFile& file, const ArenaLayout& layout) {
  std::set<std::string> known = {kStep};
  for (const TensorSlot& slot : layout.slots)
    for (const char* prefix : {"", kPrefixM, kPrefixV}) known.insert(prefix + slot.name);
  for (const auto& [name, tensor] : file.tensors())
    if (!known.contains(name))
      return error(Code::INVALID_ARGUMENT, "tensor '%s' is not part of this model", name.c_str());
  return {};
}

Status read_arena(const SafetensorsFile& file, const ArenaLayout& layout, const char* prefix,
                  std::span<float> arena) {
  std::fill(arena.begin(), arena.end(), 0.0F);
  for (const TensorSlot& slot : layout.slots)
    PLEXRL_TRY(file.read_f32(prefix + slot.name, slot.shape(),
                             arena.subspan(slot.offset, slot.elements())));
  return {};
}

Status read_state(const SafetensorsFile& file, ModelState& state, bool with_optimizer) {
  const ArenaLayout& layout = state.layout->trainable;
  ModelMemory& memory = state.memory;
  PLEXRL_TRY(read_arena(file, layout, "", memory.weights));
  if (with_optimizer) {
    PLEXRL_TRY(read_arena(file, layout, kPrefixM, memory.adam_m));
    return read_arena(file, layout, kPrefixV, memory.adam_v);
  }
  std::fill(memory.adam_m.begin(), memory.adam_m.end(), 0.0F);
  std::fill(memory.adam_v.begin(), memory.adam_v.end(), 0.0F);
  return {};
}

std::string hex(std::span<const unsigned char> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace

Result<std::string> state_sha256(const ModelState& state) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> hash(EVP_MD_CTX_new(),
                                                                     &EVP_MD_CTX_free);
  bool good = hash != nullptr && EVP_DigestInit_ex(hash.get(), EVP_sha256(), nullptr) == 1;
  for (const std::span<const float> arena :
       {std::span<const float>(state.memory.weights), std::span<const float>(state.memory.adam_m),
        std::span<const float>(state.memory.adam_v)})
    good = good && EVP_DigestUpdate(hash.get(), arena.data(), arena.size_bytes()) == 1;
  const std::uint64_t step = state.step;
  good = good && EVP_DigestUpdate(hash.get(), &step, sizeof step) == 1;
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  good = good && EVP_DigestFinal_ex(hash.get(), digest, &size) == 1;
  if (!good) return error(Code::INTERNAL, "sha256: libcrypto refused");
  return hex({digest, size});
}

Result<SavedFile> save_checkpoint(int fd, const ModelState& state, wire::FileFormat format) {
  const ArenaLayout& layout = state.layout->trainable;
  std::vector<TensorToWrite> tensors;
  add_arena(layout, "", state.memory.weights, &tensors);
  const std::uint64_t step = state.step;
  if (format == wire::FileFormat::Checkpoint) {
    add_arena(layout, kPrefixM, state.memory.adam_m, &tensors);
    add_arena(layout, kPrefixV, state.memory.adam_v, &tensors);
    tensors.push_back({kStep, DType::kU64, {1}, &step, sizeof step});
  }
  SavedFile saved;
  PLEXRL_ASSIGN(saved.bytes, write_safetensors(fd, tensors, metadata_of(*state.layout)));
  PLEXRL_ASSIGN(saved.sha256, state_sha256(state));
  return saved;
}

Status load_checkpoint(int fd, ModelState& state, bool with_optimizer) {
  const ArenaLayout& layout = state.layout->trainable;
  PLEXRL_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(fd));
  PLEXRL_TRY(check_metadata(file, *state.layout));
  PLEXRL_TRY(check_arena(file, layout, ""));
  PLEXRL_TRY(check_known(file, layout));
  std::uint64_t step = 0;
  if (with_optimizer) {
    PLEXRL_TRY(check_arena(file, layout, kPrefixM));
    PLEXRL_TRY(check_arena(file, layout, kPrefixV));
    PLEXRL_ASSIGN(step, file.read_u64(kStep));
  }
  if (const Status status = read_state(file, state, with_optimizer); !status.ok())
    return error(Code::LOST, "load: %s; the model is undefined now, load another checkpoint",
                 status.text().c_str());
  std::fill(state.memory.gradients.begin(), state.memory.gradients.end(), 0.0F);
  state.gradients_pending = false;
  state.step = step;
  return {};
}

}  // namespace plexrl::model
