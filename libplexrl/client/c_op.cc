// SPDX-License-Identifier: Apache-2.0
// plexrl.h: waiting for operations and reading results.
#include <algorithm>

#include "client/c_api.h"

namespace plexrl::client {
namespace {

// Waiting for an operation reports how it ended; its retry-after goes into the error.
plexrl_status report_end(const plexrl_op& op, const Status& status, plexrl_error* err) noexcept {
  const bool ended = op.session->done(op.exchange);
  if (!status.ok()) fill_error(err, status, ended ? op.exchange->retry_after_ms : 0);
  return static_cast<plexrl_status>(status.code());
}

TimePoint deadline_in_ms(std::int64_t ms) {
  // A year is for ever, and cannot overflow.
  constexpr std::int64_t kLongestMs = 365LL * 24 * 3600 * 1000;
  return system_clock().now() + Duration{std::min(ms, kLongestMs) * kMillisecond.ns};
}

// The reply of an operation that ended well.
Result<const wire::OpReplyT*> finished(const plexrl_op* op) {
  PLEXRL_TRY(not_null(op, "op"));
  if (!op->session->done(op->exchange))
    return error(Code::UNAVAILABLE, "the operation has not ended yet: wait for it first");
  PLEXRL_TRY(op->exchange->status);
  return op->exchange->reply.AsOpReply();
}

Status wrong_kind(const char* wanted) {
  return error(Code::INVALID_ARGUMENT, "the operation has no %s: it is of another kind", wanted);
}

template <class T>
std::vector<plexrl_floats> views_of(const T& rows) {
  std::vector<plexrl_floats> views;
  views.reserve(rows.size());
  for (const auto& row : rows) views.push_back({row->values.data(), row->values.size()});
  return views;
}

plexrl_sequence view_of(const wire::SequenceT& s) {
  return {s.tokens.data(), s.logprobs.data(), s.tokens.size(),
          s.finish == wire::FinishReason::Stop ? 1 : 0};
}

Status get_sequences(plexrl_op* op, const plexrl_sequence** sequences, std::size_t* count) {
  PLEXRL_TRY(not_null(sequences, "sequences"));
  PLEXRL_TRY(not_null(count, "count"));
  PLEXRL_ASSIGN(const wire::OpReplyT* reply, finished(op));
  const wire::GenerateResultT* result = reply->value.AsGenerateResult();
  if (result == nullptr) return wrong_kind("sequences");
  const std::lock_guard lock(op->views_mutex);
  if (op->sequences.empty())
    for (const auto& s : result->sequences) {
      if (s->logprobs.size() != s->tokens.size())
        return error(Code::PROTOCOL, "the service sent %zu tokens with %zu logprobs",
                     s->tokens.size(), s->logprobs.size());
      op->sequences.push_back(view_of(*s));
    }
  *sequences = op->sequences.data();
  *count = op->sequences.size();
  return {};
}

Status get_rows(plexrl_op* op, const plexrl_floats** rows, std::size_t* count) {
  PLEXRL_TRY(not_null(rows, "rows"));
  PLEXRL_TRY(not_null(count, "count"));
  PLEXRL_ASSIGN(const wire::OpReplyT* reply, finished(op));
  const std::lock_guard lock(op->views_mutex);
  if (const auto* result = reply->value.AsLogprobsResult())
    op->rows = views_of(result->rows);
  else if (const auto* train = reply->value.AsForwardBackwardResult())
    op->rows = views_of(train->logprobs);
  else
    return wrong_kind("rows");
  *rows = op->rows.data();
  *count = op->rows.size();
  return {};
}

Status get_train_result(const plexrl_op* op, plexrl_train_result* out) {
  PLEXRL_ASSIGN(const wire::OpReplyT* reply, finished(op));
  const auto* result = reply->value.AsForwardBackwardResult();
  if (result == nullptr) return wrong_kind("training result");
  plexrl_train_result value{};
  value.loss_sum = result->loss_sum;
  value.token_count = result->token_count;
  value.ratio_mean = result->ratio_mean;
  value.clip_fraction = result->clip_fraction;
  value.logprob_drop_mean = result->logprob_drop_mean;
  value.entropy_mean = result->entropy_mean;
  return write_struct(out, value, "plexrl_train_result");
}

Status get_save_result(const plexrl_op* op, plexrl_save_result* out) {
  PLEXRL_ASSIGN(const wire::OpReplyT* reply, finished(op));
  plexrl_save_result value{};
  if (const auto* save = reply->value.AsSaveResult()) {
    value.version = save->version;
    value.step = save->step;
    value.bytes = save->bytes;
    value.sha256 = save->sha256.c_str();
  } else if (const auto* load = reply->value.AsLoadResult()) {
    value.step = load->step;
    value.sha256 = load->sha256.c_str();
  } else {
    return wrong_kind("save or load result");
  }
  return write_struct(out, value, "plexrl_save_result");
}

Status explain(const plexrl_op* op, char* text, std::size_t capacity) {
  PLEXRL_TRY(not_null(op, "op"));
  PLEXRL_TRY(not_null(text, "text"));
  if (capacity == 0) return error(Code::INVALID_ARGUMENT, "capacity is 0");
  PLEXRL_ASSIGN(const std::string reason, op->session->explain(op->exchange));
  const std::size_t size = std::min(reason.size(), capacity - 1);
  std::memcpy(text, reason.data(), size);
  text[size] = '\0';
  return {};
}

}  // namespace
}  // namespace plexrl::client

using namespace plexrl::client;  // NOLINT(google-build-using-namespace): the file's own namespace
using plexrl::Status;

extern "C" {

plexrl_status plexrl_op_poll(plexrl_op* op, int* done, plexrl_error* err) noexcept {
  return guarded(err, [&]() -> Status {
    PLEXRL_TRY(not_null(op, "op"));
    PLEXRL_TRY(not_null(done, "done"));
    *done = op->session->done(op->exchange) ? 1 : 0;
    return {};
  });
}

plexrl_status plexrl_op_wait(plexrl_op* op, int64_t timeout_ms, plexrl_error* err) noexcept {
  Status end;
  const plexrl_status status = guarded(err, [&]() -> Status {
    PLEXRL_TRY(not_null(op, "op"));
    std::optional<plexrl::TimePoint> deadline;
    if (timeout_ms >= 0) deadline = deadline_in_ms(timeout_ms);
    end = op->session->wait(op->exchange, deadline);
    return {};
  });
  return status == PLEXRL_OK ? report_end(*op, end, err) : status;
}

plexrl_status plexrl_op_cancel(plexrl_op* op, plexrl_error* err) noexcept {
  return guarded(err, [&]() -> Status {
    PLEXRL_TRY(not_null(op, "op"));
    op->session->cancel(op->exchange);
    return {};
  });
}

plexrl_status plexrl_op_explain(plexrl_op* op, char* text, size_t capacity,
                                plexrl_error* err) noexcept {
  return guarded(err, [&] { return explain(op, text, capacity); });
}

void plexrl_op_free(plexrl_op* op) noexcept { const std::unique_ptr<plexrl_op> owner(op); }

plexrl_status plexrl_op_get_timing(plexrl_op* op, plexrl_timing* timing,
                                   plexrl_error* err) noexcept {
  return guarded(err, [&]() -> Status {
    PLEXRL_ASSIGN(const plexrl::wire::OpReplyT* reply, finished(op));
    plexrl_timing value{};
    if (reply->timing) {
      value.queued_ns = reply->timing->queued_ns;
      value.other_tenants_ns = reply->timing->other_tenants_ns;
      value.switch_ns = reply->timing->switch_ns;
      value.run_ns = reply->timing->run_ns;
    }
    return write_struct(timing, value, "plexrl_timing");
  });
}

plexrl_status plexrl_op_get_sequences(plexrl_op* op, const plexrl_sequence** sequences,
                                      size_t* count, plexrl_error* err) noexcept {
  return guarded(err, [&] { return get_sequences(op, sequences, count); });
}

plexrl_status plexrl_op_get_rows(plexrl_op* op, const plexrl_floats** rows, size_t* count,
                                 plexrl_error* err) noexcept {
  return guarded(err, [&] { return get_rows(op, rows, count); });
}

plexrl_status plexrl_op_get_train_result(plexrl_op* op, plexrl_train_result* result,
                                         plexrl_error* err) noexcept {
  return guarded(err, [&] { return get_train_result(op, result); });
}

plexrl_status plexrl_op_get_optim_result(plexrl_op* op, plexrl_optim_result* result,
                                         plexrl_error* err) noexcept {
  return guarded(err, [&]() -> Status {
    PLEXRL_ASSIGN(const plexrl::wire::OpReplyT* reply, finished(op));
    const auto* optim = reply->value.AsOptimStepResult();
    if (optim == nullptr) return wrong_kind("optimizer result");
    plexrl_optim_result value{};
    value.step = optim->step;
    value.grad_norm = optim->grad_norm;
    return write_struct(result, value, "plexrl_optim_result");
  });
}

plexrl_status plexrl_op_get_save_result(plexrl_op* op, plexrl_save_result* result,
                                        plexrl_error* err) noexcept {
  return guarded(err, [&] { return get_save_result(op, result); });
}

}  // extern "C"
