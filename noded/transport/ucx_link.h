// SPDX-License-Identifier: Apache-2.0
// UcxLink: one connection of the UCX carrier. It has a UCP worker of its own: what arrives there
// can be of this peer only, and when the worker is destroyed nothing touches memory any more,
// whatever state UCX was in. Part of the UCX carrier; one thread.
#pragma once

#include <ucp/api/ucp.h>

#include <map>
#include <memory>
#include <vector>

#include "transport/frame_socket.h"

namespace plexrl::transport {

class UcxLink {
 public:
  UcxLink(LinkId link, FrameSocket opened) : id(link), socket(std::move(opened)) {}
  UcxLink(const UcxLink&) = delete;
  UcxLink& operator=(const UcxLink&) = delete;
  ~UcxLink();  // nothing of it is under way afterwards

  // Makes the UCP worker: the address for the other end.
  [[nodiscard]] Result<std::string> make_address(ucp_context_h context);
  [[nodiscard]] Status open(std::string_view remote_address);
  [[nodiscard]] Status send(std::string_view header, std::string_view payload);
  [[nodiscard]] Status send_bulk(std::string_view header, std::span<const std::byte> payload,
                                 std::uint64_t tag);
  // True when something was done. Calls the sink.
  bool progress(Carrier::Sink& sink);
  // False: there is something to do. True: event_fd() becomes readable when there is.
  [[nodiscard]] bool arm();
  [[nodiscard]] int event_fd() const { return event_fd_; }  // -1: no worker yet

  const LinkId id;
  FrameSocket socket;
  std::uint32_t watched = 0;  // events of the socket that epoll reports
  bool told_connected = false;
  bool told_broken = false;

 private:
  // Memory that UCX uses until the callback.
  struct Operation {
    UcxLink* link = nullptr;
    std::string header;
    std::string payload;
    std::uint64_t tag = 0;
    enum class Kind : std::uint8_t { kInline, kBulk, kLanding } kind = Kind::kInline;
  };
  using Operations = std::map<Operation*, std::unique_ptr<Operation>>;

  static ucs_status_t on_inline(void* link, const void* header, std::size_t header_bytes,
                                void* data, std::size_t bytes, const ucp_am_recv_param_t* param);
  static ucs_status_t on_bulk(void* link, const void* header, std::size_t header_bytes, void* data,
                              std::size_t bytes, const ucp_am_recv_param_t* param);
  static void on_sent(void* request, ucs_status_t status, void* operation);
  static void on_landed(void* request, ucs_status_t status, std::size_t bytes, void* operation);
  static void on_error(void* link, ucp_ep_h endpoint, ucs_status_t status);
  [[nodiscard]] Status set_handler(unsigned am_id, ucp_am_recv_callback_t callback);
  Operation* add(Operation operation);
  void end(Operation* operation, ucs_status_t status);
  [[nodiscard]] Status start_send(Operation* operation, unsigned id, std::uint32_t flags,
                                  const void* data, std::size_t bytes);
  void receive(const Carrier::Sink::Landing& landing, void* data, std::size_t bytes);

  ucp_worker_h worker_ = nullptr;
  ucp_ep_h endpoint_ = nullptr;
  int event_fd_ = -1;
  Operations operations_;
  unsigned inline_under_way_ = 0;
  // What ended outside of progress(): told by the next one.
  std::vector<std::pair<std::uint64_t, Status>> sent_at_once_;
  std::optional<Status> failure_;
  Carrier::Sink* sink_ = nullptr;  // during progress()
};

[[nodiscard]] Status ucx_error(Code code, ucs_status_t status, const char* what);

}  // namespace plexrl::transport
