// SPDX-License-Identifier: Apache-2.0
// The names that the Tinker API gives out. They say all that is needed to find what they mean, so
// that plexrld keeps nothing of them and a restart loses none:
//   session          16 characters, of which the last 4 tell it from a mistyped or a strange one
//   model            SESSION:train:NUMBER, which is the name of the model in the job
//   promise          what retrieve_future asks for, see Promise
//   sampling session SESSION:sample:NUMBER:b:INDEX of a base, ...:p:FILE of a checkpoint,
//                    MODEL:sample:VERSION of what save_weights_for_sampler has published
//   checkpoint       tinker://MODEL/weights/NAME or tinker://MODEL/sampler_weights/NAME, of the
//   user
// A name of another job means nothing: whatever it leads to is looked up in the caller's job.
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/strong_id.h"

namespace plexrl::http {

[[nodiscard]] std::string make_session_id(TenantId tenant, std::uint64_t random);
[[nodiscard]] bool is_session_id(TenantId tenant, std::string_view id);

inline constexpr std::uint32_t kMaxModelNumber = 9999;
[[nodiscard]] std::string make_model_id(std::string_view session, std::uint32_t number);
[[nodiscard]] bool is_model_id(TenantId tenant, std::string_view id);

// A model that load_weights made without create_model: the load is number 1 of its stream, and the
// client's numbers, which begin at 1 behind it, are one less than the stream's. Its name in the job
// says so, also after a restart.
[[nodiscard]] std::string name_by_load(std::string_view model_id);
[[nodiscard]] bool is_by_load(std::string_view name);
// The id of a model of that name.
[[nodiscard]] std::string id_of_name(std::string_view name);

// "KIND/MODEL/A/B/TEXT"
struct Promise {
  enum Kind : char {
    kCreateModel = 'c',  // a: rank, b: seed, text: base
    kUnloadModel = 'u',
    kForwardBackward = 'f',  // a: seq; so all ops of a training stream
    kOptimStep = 'o',
    kSaveWeights = 'w',  // text: the checkpoint's name
    kSaveSampler = 'p',  // the same, sampler_weights
    kPublish = 's',      // a: seq, which is the version
    kLoadWeights = 'l',
    kCreateByLoad = 'r',  // a: rank, b: 1 with the optimizer, text: "FILE/BASE"
    kSample = 'g',        // a: which run of plexrld, b: which sample
  };
  Kind kind = kCreateModel;
  std::string model;
  std::uint64_t a = 0, b = 0;
  std::string text;
};
[[nodiscard]] std::string format_promise(const Promise& promise);
// INVALID_ARGUMENT: plexrld gives out no such thing.
[[nodiscard]] Result<Promise> parse_promise(std::string_view id);

// Of a user's checkpoints in the service's store; the store's names have 64 bytes at most.
struct CheckpointName {
  std::string model;
  bool sampler = false;
  std::string name;
};
inline constexpr std::size_t kMaxCheckpointName = 36;
inline constexpr const char* kCheckpointFiles = "t.";  // how their names begin
[[nodiscard]] std::string checkpoint_path(const CheckpointName& checkpoint);
// "weights/NAME"
[[nodiscard]] std::string checkpoint_id(const CheckpointName& checkpoint);
[[nodiscard]] std::string checkpoint_file(const CheckpointName& checkpoint);
// INVALID_ARGUMENT: no checkpoint can have that path.
[[nodiscard]] Result<CheckpointName> parse_checkpoint_path(std::string_view path);
[[nodiscard]] std::optional<CheckpointName> checkpoint_of_file(std::string_view file);
// NAME may be used for one.
[[nodiscard]] Status check_checkpoint_name(std::string_view name);

struct SamplerId {
  enum class Kind : std::uint8_t { kBase, kCheckpoint, kVersion };
  Kind kind = Kind::kBase;
  std::string session;        // of a base or a checkpoint
  std::uint32_t number = 0;   // the same
  std::size_t base = 0;       // among the bases of the grant
  std::string file;           // of a checkpoint
  std::string model;          // of a version
  std::uint64_t version = 0;  // the same
};
[[nodiscard]] std::string format_sampler(const SamplerId& sampler);
[[nodiscard]] std::optional<SamplerId> parse_sampler(TenantId tenant, std::string_view id);

}  // namespace plexrl::http
