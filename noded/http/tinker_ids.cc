// SPDX-License-Identifier: Apache-2.0
#include "http/tinker_ids.h"

#include <charconv>
#include <cstdio>
#include <optional>

#include "base/crc32c.h"
#include "runtime/op_check.h"

namespace plexrl::http {
namespace {

constexpr std::size_t kRandomDigits = 12;
constexpr std::size_t kCheckDigits = 4;
constexpr std::string_view kTrain = ":train:";
constexpr std::string_view kSample = ":sample:";
constexpr std::string_view kKinds = "cufowpslgr";
constexpr char kByLoad = '+';
constexpr std::string_view kScheme = "tinker://";

std::string check_digits(TenantId tenant, std::string_view random) {
  const std::string text = std::to_string(tenant.value) + "/" + std::string(random);
  char digits[kCheckDigits + 1];
  const auto* const bytes = reinterpret_cast<const std::byte*>(text.data());
  std::snprintf(digits, sizeof digits, "%04x", crc32c(bytes, text.size()) & 0xffffU);
  return digits;
}

// Without signs and leading zeros, so that a thing has one name.
std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool plain = text.size() == 1 || !text.starts_with('0');
  if (failure != std::errc() || end != text.data() + text.size() || !plain) return std::nullopt;
  return value;
}

// What stands before the next `mark`, which is taken away with it.
std::string_view take_part(std::string_view* text, char mark = '/') {
  const std::size_t at = text->find(mark);
  const std::string_view part = text->substr(0, at);
  text->remove_prefix(at == std::string_view::npos ? text->size() : at + 1);
  return part;
}

bool is_session_text(std::string_view id) {
  return id.size() == kRandomDigits + kCheckDigits &&
         id.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Whoever's it is.
bool is_model_text(std::string_view id) {
  const std::size_t at = id.find(kTrain);
  if (at == std::string_view::npos || !is_session_text(id.substr(0, at))) return false;
  const auto value = number(id.substr(at + kTrain.size()));
  return value && *value <= kMaxModelNumber;
}

}  // namespace

std::string make_session_id(TenantId tenant, std::uint64_t random) {
  char digits[kRandomDigits + 1];
  std::snprintf(digits, sizeof digits, "%012llx",
                static_cast<unsigned long long>(random & 0xffffffffffffU));
  return digits + check_digits(tenant, digits);
}

bool is_session_id(TenantId tenant, std::string_view id) {
  return is_session_text(id) &&
         id.substr(kRandomDigits) == check_digits(tenant, id.substr(0, kRandomDigits));
}

std::string make_model_id(std::string_view session, std::uint32_t number) {
  return std::string(session) + std::string(kTrain) + std::to_string(number);
}

bool is_model_id(TenantId tenant, std::string_view id) {
  return is_model_text(id) && is_session_id(tenant, id.substr(0, id.find(':')));
}

std::string name_by_load(std::string_view model_id) { return std::string(model_id) + kByLoad; }

bool is_by_load(std::string_view name) { return name.ends_with(kByLoad); }

std::string id_of_name(std::string_view name) {
  if (is_by_load(name)) name.remove_suffix(1);
  return std::string(name);
}

std::string format_promise(const Promise& promise) {
  return std::string(1, promise.kind) + "/" + promise.model + "/" + std::to_string(promise.a) +
         "/" + std::to_string(promise.b) + "/" + promise.text;
}

Result<Promise> parse_promise(std::string_view id) {
  Promise promise;
  std::string_view left = id;
  const std::string_view kind = take_part(&left);
  promise.model = take_part(&left);
  const auto a = number(take_part(&left));
  const auto b = number(take_part(&left));
  promise.text = left;
  if (kind.size() != 1 || kKinds.find(kind) == std::string_view::npos || !a || !b)
    return error(Code::INVALID_ARGUMENT, "'request_id': there is no such promise");
  promise.kind = static_cast<Promise::Kind>(kind.front());
  promise.a = *a;
  promise.b = *b;
  if (format_promise(promise) == id) return promise;
  return error(Code::INVALID_ARGUMENT, "'request_id': there is no such promise");
}

// ---- checkpoints ----

std::string checkpoint_id(const CheckpointName& checkpoint) {
  return (checkpoint.sampler ? "sampler_weights/" : "weights/") + checkpoint.name;
}

std::string checkpoint_path(const CheckpointName& checkpoint) {
  return std::string(kScheme) + checkpoint.model + "/" + checkpoint_id(checkpoint);
}

// "t.SESSION.NUMBER.w.NAME": ':' and '/' are not possible in the store.
std::string checkpoint_file(const CheckpointName& checkpoint) {
  const std::size_t at = checkpoint.model.find(kTrain);
  return kCheckpointFiles + checkpoint.model.substr(0, at) + "." +
         checkpoint.model.substr(at + kTrain.size()) + (checkpoint.sampler ? ".s." : ".w.") +
         checkpoint.name;
}

Status check_checkpoint_name(std::string_view name) {
  if (name.size() <= kMaxCheckpointName && runtime::valid_name(name)) return {};
  return error(Code::INVALID_ARGUMENT,
               "a checkpoint's name has 1 to %zu of A-Z a-z 0-9 . _ -, and is not . or ..",
               kMaxCheckpointName);
}

Result<CheckpointName> parse_checkpoint_path(std::string_view path) {
  CheckpointName found;
  std::string_view left = path;
  const bool scheme = left.starts_with(kScheme);
  if (scheme) left.remove_prefix(kScheme.size());
  found.model = take_part(&left);
  const std::string_view kind = take_part(&left);
  found.sampler = kind == "sampler_weights";
  found.name = left;
  const bool good = scheme && is_model_text(found.model) && (found.sampler || kind == "weights") &&
                    check_checkpoint_name(found.name).ok();
  if (good) return found;
  return error(Code::INVALID_ARGUMENT,
               "'%s' is no path of a checkpoint; they are tinker://MODEL/weights/NAME or "
               "tinker://MODEL/sampler_weights/NAME",
               std::string(path.substr(0, 120)).c_str());
}

std::optional<CheckpointName> checkpoint_of_file(std::string_view file) {
  if (!file.starts_with(kCheckpointFiles)) return std::nullopt;
  file.remove_prefix(std::string_view(kCheckpointFiles).size());
  const std::string session(take_part(&file, '.'));
  const std::string count(take_part(&file, '.'));
  const std::string_view kind = take_part(&file, '.');
  CheckpointName found{session + std::string(kTrain) + count, kind == "s", std::string(file)};
  const bool good = is_model_text(found.model) && (kind == "s" || kind == "w") &&
                    check_checkpoint_name(found.name).ok();
  return good ? std::optional(found) : std::nullopt;
}

// ---- sampling sessions ----

std::string format_sampler(const SamplerId& sampler) {
  if (sampler.kind == SamplerId::Kind::kVersion)
    return sampler.model + std::string(kSample) + std::to_string(sampler.version);
  const std::string head =
      sampler.session + std::string(kSample) + std::to_string(sampler.number) + ":";
  if (sampler.kind == SamplerId::Kind::kBase) return head + "b:" + std::to_string(sampler.base);
  return head + "p:" + sampler.file;
}

std::optional<SamplerId> parse_sampler(TenantId tenant, std::string_view id) {
  const std::size_t at = id.find(kSample);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view head = id.substr(0, at);
  std::string_view left = id.substr(at + kSample.size());
  SamplerId found;
  const auto count = number(take_part(&left, ':'));
  if (!count) return std::nullopt;
  if (left.empty()) {
    found.kind = SamplerId::Kind::kVersion;
    found.model = head;
    found.version = *count;
    return is_model_id(tenant, head) ? std::optional(found) : std::nullopt;
  }
  found.session = head;
  found.number = static_cast<std::uint32_t>(*count);
  const std::string_view kind = take_part(&left, ':');
  const auto base = number(left);
  found.kind = kind == "b" ? SamplerId::Kind::kBase : SamplerId::Kind::kCheckpoint;
  if (kind == "b") found.base = base.value_or(0);
  if (kind == "p") found.file = left;
  const bool good = is_session_id(tenant, head) && *count <= UINT32_MAX &&
                    ((kind == "b" && base) || (kind == "p" && checkpoint_of_file(left)));
  return good ? std::optional(found) : std::nullopt;
}

}  // namespace plexrl::http
