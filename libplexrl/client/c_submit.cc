// SPDX-License-Identifier: Apache-2.0
// plexrl.h: submitting operations.
#include <fcntl.h>

#include <cerrno>

#include "client/c_api.h"
#include "client/op_args.h"

namespace plexrl::client {
namespace {

template <class ArgsT>
Status submit(plexrl_model* model, ArgsT args, plexrl_op** out, UniqueFd fd = {}) {
  wire::OpArgsUnion body;
  body.Set(std::move(args));
  auto handle = std::make_unique<plexrl_op>();
  handle->session = model->session;
  PLEXRL_ASSIGN(handle->exchange,
                model->session->submit(model->model, std::move(body), std::move(fd)));
  *out = handle.release();
  return {};
}

Status check_handles(const plexrl_model* model, plexrl_op** out) {
  PLEXRL_TRY(not_null(model, "model"));
  return not_null(out, "out");
}

Result<UniqueFd> duplicate(int fd) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) return errno_error(Code::INVALID_ARGUMENT, errno, "fd %d", fd);
  return copy;
}

// Named: in the service's store.
Status save(plexrl_model* model, wire::SaveTarget target, const char* name, plexrl_op** out) {
  PLEXRL_TRY(check_handles(model, out));
  wire::SaveArgsT args;
  args.target = target;
  if (target == wire::SaveTarget::Store) {
    PLEXRL_TRY(check_store_name(name));
    args.name = name;
  }
  return submit(model, std::move(args), out);
}

Status save_file(plexrl_model* model, int fd, plexrl_file_format format, plexrl_op** out) {
  PLEXRL_TRY(check_handles(model, out));
  if (format != PLEXRL_FILE_CHECKPOINT && format != PLEXRL_FILE_WEIGHTS)
    return error(Code::INVALID_ARGUMENT, "file format %d is not known", static_cast<int>(format));
  PLEXRL_ASSIGN(UniqueFd copy, duplicate(fd));
  wire::SaveArgsT args;
  args.target = wire::SaveTarget::ClientFd;
  args.format = static_cast<wire::FileFormat>(format);
  return submit(model, std::move(args), out, std::move(copy));
}

Status load_file(plexrl_model* model, int fd, bool with_optimizer, plexrl_op** out) {
  PLEXRL_TRY(check_handles(model, out));
  PLEXRL_ASSIGN(UniqueFd copy, duplicate(fd));
  wire::LoadArgsT args;
  args.target = wire::SaveTarget::ClientFd;
  args.with_optimizer = with_optimizer;
  return submit(model, std::move(args), out, std::move(copy));
}

}  // namespace
}  // namespace plexrl::client

using namespace plexrl::client;  // NOLINT(google-build-using-namespace): the file's own namespace
using plexrl::Status;

extern "C" {

plexrl_status plexrl_generate(plexrl_model* model, const plexrl_generate_options* options,
                              plexrl_op** out, plexrl_error* err) noexcept {
  return guarded(err, [&]() -> Status {
    PLEXRL_TRY(check_handles(model, out));
    PLEXRL_ASSIGN(const auto given, read_struct(options, "plexrl_generate_options"));
    PLEXRL_ASSIGN(auto args, generate_args(given));
    return submit(model, std::move(args), out);
  });
}

plexrl_status plexrl_logprobs(plexrl_model* model, uint64_t version, const plexrl_tokens* sequences,
                              size_t sequence_count, plexrl_op** out, plexrl_error* err) noexcept {
  return guarded(err, [&]() -> Status {
    PLEXRL_TRY(check_handles(model, out));
    PLEXRL_ASSIGN(auto args, logprobs_args(version, sequences, sequence_count));
    return submit(model, std::move(args), out);
  });
}

plexrl_status plexrl_forward_backward(plexrl_model* model,
                                      const plexrl_forward_backward_options* options,
                                      plexrl_op** out, plexrl_error* err) noexcept {
  return guarded(err, [&]() -> Status {
    PLEXRL_TRY(check_handles(model, out));
    PLEXRL_ASSIGN(const auto given, read_struct(options, "plexrl_forward_backward_options"));
    PLEXRL_ASSIGN(auto args, forward_backward_args(given));
    return submit(model, std::move(args), out);
  });
}

plexrl_status plexrl_optim_step(plexrl_model* model, const plexrl_optim_options* options,
                                plexrl_op** out, plexrl_error* err) noexcept {
  return guarded(err, [&]() -> Status {
    PLEXRL_TRY(check_handles(model, out));
    PLEXRL_ASSIGN(const auto given, read_struct(options, "plexrl_optim_options"));
    PLEXRL_ASSIGN(const auto args, optim_args(given));
    return submit(model, args, out);
  });
}

plexrl_status plexrl_publish(plexrl_model* model, plexrl_op** out, plexrl_error* err) noexcept {
  return guarded(err, [&] { return save(model, plexrl::wire::SaveTarget::Sampler, nullptr, out); });
}

plexrl_status plexrl_save(plexrl_model* model, const char* name, plexrl_op** out,
                          plexrl_error* err) noexcept {
  return guarded(err, [&] { return save(model, plexrl::wire::SaveTarget::Store, name, out); });
}

plexrl_status plexrl_save_fd(plexrl_model* model, int fd, plexrl_file_format format,
                             plexrl_op** out, plexrl_error* err) noexcept {
  return guarded(err, [&] { return save_file(model, fd, format, out); });
}

plexrl_status plexrl_load(plexrl_model* model, const char* name, plexrl_op** out,
                          plexrl_error* err) noexcept {
  return guarded(err, [&]() -> Status {
    PLEXRL_TRY(check_handles(model, out));
    PLEXRL_TRY(check_store_name(name));
    plexrl::wire::LoadArgsT args;
    args.target = plexrl::wire::SaveTarget::Store;
    args.name = name;
    return submit(model, std::move(args), out);
  });
}

plexrl_status plexrl_load_fd(plexrl_model* model, int fd, int with_optimizer, plexrl_op** out,
                             plexrl_error* err) noexcept {
  return guarded(err, [&] { return load_file(model, fd, with_optimizer != 0, out); });
}

}  // extern "C"
