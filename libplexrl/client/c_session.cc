// SPDX-License-Identifier: Apache-2.0
// plexrl.h: session, models, queries.
#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "client/c_api.h"
#include "client/query.h"
#include "config.h"

namespace plexrl::client {
namespace {

constexpr std::int64_t kDefaultTimeoutMs = 30'000;
constexpr std::int64_t kMaxTimeoutMs = 24LL * 3600 * 1000;

// The argument, or the environment variable that the job was given.
Result<std::string> or_environment(const char* given, const char* variable) {
  if (given != nullptr) return std::string(given);
  const char* value = std::getenv(variable);
  if (value == nullptr || *value == '\0')
    return error(Code::INVALID_ARGUMENT,
                 "%s is not set: run inside a job that was submitted with --plexrl-pool", variable);
  return std::string(value);
}

Result<SessionOptions> session_options(const plexrl_connect_options& given) {
  SessionOptions options;
  PLEXRL_ASSIGN(options.target.socket, or_environment(given.socket_path, "PLEXRL_SOCKET"));
  PLEXRL_ASSIGN(options.target.token, or_environment(given.token, "PLEXRL_TOKEN"));
  options.target.client_name =
      given.client_name != nullptr ? given.client_name : program_invocation_short_name;
  const std::int64_t ms = given.timeout_ms > 0 ? given.timeout_ms : kDefaultTimeoutMs;
  options.timeout = {std::min(ms, kMaxTimeoutMs) * kMillisecond.ns};
  return options;
}

Status connect(const plexrl_connect_options* given, plexrl_session** out) {
  PLEXRL_TRY(not_null(out, "out"));
  plexrl_connect_options options{};
  if (given != nullptr) {
    PLEXRL_ASSIGN(options, read_struct(given, "plexrl_connect_options"));
  }
  PLEXRL_ASSIGN(SessionOptions made, session_options(options));
  auto handle = std::make_unique<plexrl_session>();
  PLEXRL_ASSIGN(handle->session, Session::connect(std::move(made)));
  handle->hello = handle->session->hello();
  for (const std::string& base : handle->hello.models) handle->bases.push_back(base.c_str());
  *out = handle.release();
  return {};
}

Result<wire::TrainMode> parse_train_mode(const char* text) {
  for (const auto mode : {wire::TrainMode::None, wire::TrainMode::Lora, wire::TrainMode::Full})
    if (std::strcmp(text, train_mode_name(mode)) == 0) return mode;
  return error(Code::INVALID_ARGUMENT, "train_mode '%.40s': use lora, full or none", text);
}

// What the caller leaves out is the grant's.
Result<wire::CreateModelT> create_request(const plexrl_session& session,
                                          const plexrl_model_options& options) {
  if (options.name == nullptr || *options.name == '\0')
    return error(Code::INVALID_ARGUMENT, "plexrl_model_options: name is needed");
  wire::CreateModelT request;
  request.name = options.name;
  request.seed = options.seed;
  request.base = options.base != nullptr        ? options.base
                 : session.hello.models.empty() ? ""
                                                : session.hello.models[0];
  request.mode = session.hello.mode;
  if (options.train_mode != nullptr) {
    PLEXRL_ASSIGN(request.mode, parse_train_mode(options.train_mode));
  }
  if (request.mode == wire::TrainMode::Lora)
    request.lora_rank = options.lora_rank != 0 ? options.lora_rank : session.hello.lora_rank;
  return request;
}

Status create_model(plexrl_session* session, const plexrl_model_options* given,
                    plexrl_model** out) {
  PLEXRL_TRY(not_null(session, "session"));
  PLEXRL_TRY(not_null(out, "out"));
  PLEXRL_ASSIGN(const plexrl_model_options options, read_struct(given, "plexrl_model_options"));
  PLEXRL_ASSIGN(wire::CreateModelT request, create_request(*session, options));
  auto handle = std::make_unique<plexrl_model>();
  handle->session = session->session;
  PLEXRL_ASSIGN(handle->model, session->session->open_model(std::move(request)));
  PLEXRL_ASSIGN(handle->created, session->session->model_info(handle->model));
  *out = handle.release();
  return {};
}

plexrl_model_info to_c(const wire::ModelInfoT& now, const wire::ModelInfoT& strings) {
  plexrl_model_info info{};
  info.id = now.model;
  info.name = strings.name.c_str();
  info.base = strings.base.c_str();
  info.train_mode = train_mode_name(now.mode);
  info.lora_rank = now.lora_rank;
  info.vocab_size = now.vocab_size;
  info.max_positions = now.max_positions;
  info.parameters = now.parameters;
  info.trainable_parameters = now.trainable_parameters;
  info.step = now.step;
  info.next_seq = now.next_seq;
  info.latest_version = now.latest_version;
  info.tokenizer = strings.tokenizer.c_str();
  return info;
}

Status query_json(plexrl_session* session, const char* kind, std::uint32_t job_id, char** json) {
  PLEXRL_TRY(not_null(session, "session"));
  PLEXRL_TRY(not_null(json, "json"));
  PLEXRL_TRY(not_null(kind, "kind"));
  const auto parsed = parse_query_kind(kind);
  if (!parsed)
    return error(Code::INVALID_ARGUMENT, "query '%.40s': use status, jobs, ops, report or metrics",
                 kind);
  PLEXRL_ASSIGN(const std::string text, session->session->query(*parsed, job_id));
  char* copy = ::strdup(text.c_str());
  if (copy == nullptr) return error(Code::NO_CAPACITY, "out of memory");
  *json = copy;
  return {};
}

}  // namespace

void fill_error(plexrl_error* err, const Status& status, std::uint32_t retry_after_ms) noexcept {
  if (err == nullptr) return;
  err->code = static_cast<plexrl_status>(status.code());
  err->retry_after_ms = retry_after_ms;
  const std::size_t size = std::min(status.text().size(), sizeof err->text - 1);
  std::memcpy(err->text, status.text().data(), size);
  err->text[size] = '\0';
}

const char* train_mode_name(wire::TrainMode mode) noexcept {
  switch (mode) {
    case wire::TrainMode::Lora:
      return "lora";
    case wire::TrainMode::Full:
      return "full";
    case wire::TrainMode::None:
      break;
  }
  return "none";
}

}  // namespace plexrl::client

using namespace plexrl::client;  // NOLINT(google-build-using-namespace): the file's own namespace

extern "C" {

uint32_t plexrl_abi_version(void) noexcept { return PLEXRL_ABI_VERSION; }

const char* plexrl_version(void) noexcept { return PACKAGE_VERSION; }

const char* plexrl_status_name(plexrl_status s) noexcept {
  return plexrl::code_name(static_cast<plexrl::Code>(s)).data();  // literals: terminated
}

plexrl_status plexrl_connect(const plexrl_connect_options* options, plexrl_session** out,
                             plexrl_error* err) noexcept {
  return guarded(err, [&] { return connect(options, out); });
}

void plexrl_disconnect(plexrl_session* session) noexcept {
  if (session == nullptr) return;
  const std::unique_ptr<plexrl_session> owner(session);
  static_cast<void>(guarded(nullptr, [&] {
    owner->session->close();
    return plexrl::Status();
  }));
}

plexrl_status plexrl_session_get_info(plexrl_session* session, plexrl_session_info* info,
                                      plexrl_error* err) noexcept {
  return guarded(err, [&]() -> plexrl::Status {
    PLEXRL_TRY(not_null(session, "session"));
    const plexrl::wire::HelloReplyT& hello = session->hello;
    plexrl_session_info value{};
    value.job_id = hello.job_id;
    value.tenant = hello.tenant;
    value.node = hello.node.c_str();
    value.base_count = session->bases.size();
    value.bases = session->bases.data();
    value.train_mode = train_mode_name(hello.mode);
    value.lora_rank = hello.lora_rank;
    return write_struct(info, value, "plexrl_session_info");
  });
}

plexrl_status plexrl_model_create(plexrl_session* session, const plexrl_model_options* options,
                                  plexrl_model** out, plexrl_error* err) noexcept {
  return guarded(err, [&] { return create_model(session, options, out); });
}

plexrl_status plexrl_model_get_info(plexrl_model* model, plexrl_model_info* info,
                                    plexrl_error* err) noexcept {
  return guarded(err, [&]() -> plexrl::Status {
    PLEXRL_TRY(not_null(model, "model"));
    PLEXRL_ASSIGN(const plexrl::wire::ModelInfoT now, model->session->model_info(model->model));
    return write_struct(info, to_c(now, model->created), "plexrl_model_info");
  });
}

plexrl_status plexrl_model_delete(plexrl_model* model, plexrl_error* err) noexcept {
  return guarded(err, [&]() -> plexrl::Status {
    PLEXRL_TRY(not_null(model, "model"));
    return model->session->delete_model(model->model);
  });
}

void plexrl_model_release(plexrl_model* model) noexcept {
  const std::unique_ptr<plexrl_model> owner(model);
}

plexrl_status plexrl_query(plexrl_session* session, const char* kind, uint32_t job_id, char** json,
                           plexrl_error* err) noexcept {
  return guarded(err, [&] { return query_json(session, kind, job_id, json); });
}

void plexrl_string_free(char* string) noexcept { std::free(string); }

}  // extern "C"
