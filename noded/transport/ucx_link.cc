// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx_link.h"

#include <cstring>

namespace plexrl::transport {
namespace {

constexpr unsigned kInlineId = 1;
constexpr unsigned kBulkId = 2;
// From here on the receiver fetches the payload when it has a place for it.
constexpr std::size_t kRendezvousBytes = 32U << 10;
// Small messages that UCX has not got rid of; a peer that is alive takes them.
constexpr unsigned kMostInline = 1024;
constexpr int kCloseTurns = 1000;

}  // namespace

Status ucx_error(Code code, ucs_status_t status, const char* what) {
  return error(code, "%s: UCX: %s", what, ucs_status_string(status));
}

UcxLink::~UcxLink() {
  sink_ = nullptr;
  if (endpoint_ != nullptr) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    void* const request = ucp_ep_close_nbx(endpoint_, &param);
    if (UCS_PTR_IS_PTR(request)) {
      for (int i = 0; i < kCloseTurns && ucp_request_check_status(request) == UCS_INPROGRESS; ++i)
        ucp_worker_progress(worker_);
      ucp_request_free(request);
    }
  }
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
}

Status UcxLink::set_handler(unsigned am_id, ucp_am_recv_callback_t callback) {
  ucp_am_handler_param_t param{};
  param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                     UCP_AM_HANDLER_PARAM_FIELD_ARG;
  param.id = am_id;
  param.cb = callback;
  param.arg = this;
  const ucs_status_t status = ucp_worker_set_am_recv_handler(worker_, &param);
  return status == UCS_OK ? Status() : ucx_error(Code::UNAVAILABLE, status, "a handler");
}

Result<std::string> UcxLink::make_address(ucp_context_h context) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_EVENTS;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  params.events = UCP_WAKEUP_RX | UCP_WAKEUP_TX;
  ucs_status_t status = ucp_worker_create(context, &params, &worker_);
  if (status != UCS_OK) return ucx_error(Code::UNAVAILABLE, status, "a worker");
  PLEXRL_TRY(set_handler(kInlineId, &on_inline));
  PLEXRL_TRY(set_handler(kBulkId, &on_bulk));
  status = ucp_worker_get_efd(worker_, &event_fd_);
  if (status != UCS_OK) return ucx_error(Code::UNAVAILABLE, status, "its event descriptor");
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  status = ucp_worker_get_address(worker_, &address, &bytes);
  if (status != UCS_OK) return ucx_error(Code::UNAVAILABLE, status, "its address");
  std::string text(reinterpret_cast<const char*>(address), bytes);
  ucp_worker_release_address(worker_, address);
  return text;
}

Status UcxLink::open(std::string_view remote_address) {
  const std::string copy(remote_address);
  if (copy.empty()) return error(Code::PROTOCOL, "a hello without an address of UCX");
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(copy.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {&on_error, this};
  const ucs_status_t status = ucp_ep_create(worker_, &params, &endpoint_);
  return status == UCS_OK ? Status() : ucx_error(Code::UNAVAILABLE, status, "an endpoint");
}

UcxLink::Operation* UcxLink::add(Operation operation) {
  auto owned = std::make_unique<Operation>(std::move(operation));
  Operation* const at = owned.get();
  operations_[at] = std::move(owned);
  if (at->kind == Operation::Kind::kInline) ++inline_under_way_;
  return at;
}

void UcxLink::end(Operation* operation, ucs_status_t status) {
  const auto found = operations_.find(operation);
  const std::unique_ptr<Operation> ended = std::move(found->second);
  operations_.erase(found);
  const Status outcome =
      status == UCS_OK ? Status() : ucx_error(Code::UNAVAILABLE, status, "a transfer");
  if (ended->kind == Operation::Kind::kInline) {
    --inline_under_way_;
    if (!outcome.ok() && !failure_) failure_ = outcome;
  } else if (ended->kind == Operation::Kind::kLanding) {
    if (sink_ != nullptr) sink_->landed(id, ended->tag, outcome);
  } else if (sink_ != nullptr) {
    sink_->sent(id, ended->tag, outcome);
  } else {
    sent_at_once_.emplace_back(ended->tag, outcome);
  }
}

void UcxLink::on_sent(void* request, ucs_status_t status, void* operation) {
  auto* const ended = static_cast<Operation*>(operation);
  ended->link->end(ended, status);
  ucp_request_free(request);
}

void UcxLink::on_landed(void* request, ucs_status_t status, std::size_t, void* operation) {
  on_sent(request, status, operation);
}

void UcxLink::on_error(void* link, ucp_ep_h, ucs_status_t status) {
  auto* const self = static_cast<UcxLink*>(link);
  if (!self->failure_) self->failure_ = ucx_error(Code::UNAVAILABLE, status, "the connection");
}

Status UcxLink::start_send(Operation* operation, unsigned am_id, std::uint32_t flags,
                           const void* data, std::size_t bytes) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                       UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.cb.send = &on_sent;
  param.user_data = operation;
  param.flags = flags;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  void* const request = ucp_am_send_nbx(endpoint_, am_id, operation->header.data(),
                                        operation->header.size(), data, bytes, &param);
  if (!UCS_PTR_IS_PTR(request)) end(operation, UCS_PTR_STATUS(request));
  return {};
}

Status UcxLink::send(std::string_view header, std::string_view payload) {
  if (endpoint_ == nullptr) return error(Code::UNAVAILABLE, "not open yet");
  if (inline_under_way_ >= kMostInline) return error(Code::UNAVAILABLE, "the peer does not read");
  Operation* const operation = add({this, std::string(header), std::string(payload), 0, {}});
  return start_send(operation, kInlineId, UCP_AM_SEND_FLAG_EAGER, operation->payload.data(),
                    operation->payload.size());
}

Status UcxLink::send_bulk(std::string_view header, std::span<const std::byte> payload,
                          std::uint64_t tag) {
  if (endpoint_ == nullptr) return error(Code::UNAVAILABLE, "not open yet");
  Operation* const operation = add({this, std::string(header), {}, tag, Operation::Kind::kBulk});
  const bool rendezvous = payload.size() >= kRendezvousBytes;
  return start_send(operation, kBulkId, rendezvous ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER,
                    payload.data(), payload.size());
}

ucs_status_t UcxLink::on_inline(void* link, const void* header, std::size_t header_bytes,
                                void* data, std::size_t bytes, const ucp_am_recv_param_t* param) {
  auto* const self = static_cast<UcxLink*>(link);
  if (self->sink_ == nullptr) return UCS_OK;
  const bool there = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0;
  if (!there || bytes > kMaxInlineBytes) {
    self->failure_ =
        error(Code::PROTOCOL, "a message of %zu bytes: at most %zu", bytes, kMaxInlineBytes);
    return UCS_OK;
  }
  self->sink_->message(self->id, {static_cast<const char*>(header), header_bytes},
                       {static_cast<const char*>(data), bytes});
  return UCS_OK;
}

ucs_status_t UcxLink::on_bulk(void* link, const void* header, std::size_t header_bytes, void* data,
                              std::size_t bytes, const ucp_am_recv_param_t* param) {
  auto* const self = static_cast<UcxLink*>(link);
  if (self->sink_ == nullptr) return UCS_OK;
  const auto landing =
      self->sink_->bulk(self->id, {static_cast<const char*>(header), header_bytes}, bytes);
  if (!landing) return UCS_OK;  // UCX drops it
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
    self->receive(*landing, data, bytes);
    return UCS_OK;
  }
  if (bytes > 0) std::memcpy(landing->at, data, bytes);
  self->sink_->landed(self->id, landing->tag, Status());
  return UCS_OK;
}

void UcxLink::receive(const Carrier::Sink::Landing& landing, void* data, std::size_t bytes) {
  Operation* const operation = add({this, {}, {}, landing.tag, Operation::Kind::kLanding});
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                       UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.cb.recv_am = &on_landed;
  param.user_data = operation;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  void* const request = ucp_am_recv_data_nbx(worker_, data, landing.at, bytes, &param);
  if (!UCS_PTR_IS_PTR(request)) end(operation, UCS_PTR_STATUS(request));
}

bool UcxLink::progress(Carrier::Sink& sink) {
  constexpr int kMostTurns = 64;  // then the others
  if (worker_ == nullptr || told_broken) return false;
  sink_ = &sink;
  for (const auto& [tag, status] : std::exchange(sent_at_once_, {})) sink.sent(id, tag, status);
  int turns = 0;
  while (turns < kMostTurns && ucp_worker_progress(worker_) != 0) ++turns;
  if (failure_) {
    told_broken = true;
    sink.broken(id, *failure_);
  }
  sink_ = nullptr;
  return turns > 0;
}

bool UcxLink::arm() {
  return worker_ == nullptr || told_broken ||
         (sent_at_once_.empty() && ucp_worker_arm(worker_) == UCS_OK);
}

}  // namespace plexrl::transport
