// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx_carrier.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <memory>

#include "transport/ucx_link.h"

namespace plexrl::transport {
namespace {

// What epoll reports, in the lowest bits of its number; the others are the link.
enum class Watched : std::uint64_t { kWake, kListener, kSocket, kWorker };

std::uint64_t watch_number(Watched kind, LinkId link) {
  return link.value << 2 | static_cast<std::uint64_t>(kind);
}

struct ConfigDeleter {
  void operator()(ucp_config_t* config) const { ucp_config_release(config); }
};
using Config = std::unique_ptr<ucp_config_t, ConfigDeleter>;

// UCX 1.13 reads the settings of its transports from the environment alone, some of them when a
// worker is made. What is there already stays.
void set(const char* name, const char* value) { ::setenv(name, value, 0); }

bool has(const std::string& transports, std::string_view name) {
  return ("," + transports + ",").find("," + std::string(name) + ",") != std::string::npos;
}

std::string transports_of(const UcxOptions& options) {
  const char* const asked = std::getenv("UCX_TLS");
  return asked != nullptr ? asked : options.transports;
}

void set_environment(const UcxOptions& options) {
  set("UCX_TLS", options.transports.c_str());
  if (!options.devices.empty()) set("UCX_NET_DEVICES", options.devices.c_str());
  const std::string transports = transports_of(options);
  // Without these, endpoints that report the death of a peer go over TCP inside a host too.
  if (has(transports, "posix")) set("UCX_POSIX_ERROR_HANDLING", "y");
  if (has(transports, "sysv")) set("UCX_SYSV_ERROR_HANDLING", "y");
  // Zero-copy sends over TCP abort the process now and then when the peer dies in the middle (UCX
  // 1.13.1: "comp->count > 0", 2026-12-01). Copies through larger segments do not. RDMA needs
  // neither.
  const auto rdma = {"rc", "rc_x", "rc_v", "dc", "dc_x", "ud", "ud_x", "ud_v", "ib", "all"};
  if (std::any_of(rdma.begin(), rdma.end(), [&](const char* it) { return has(transports, it); }))
    return;
  set("UCX_RNDV_SCHEME", "am");
  set("UCX_ZCOPY_THRESH", "inf");
  set("UCX_TCP_TX_SEG_SIZE", "64K");
}

Result<Config> make_config(const UcxOptions& options) {
  set_environment(options);
  ucp_config_t* read = nullptr;
  const ucs_status_t status = ucp_config_read(nullptr, nullptr, &read);
  if (status != UCS_OK) return ucx_error(Code::UNSUPPORTED, status, "its configuration");
  return Config(read);
}

class UcxCarrier final : public Carrier {
 public:
  UcxCarrier(ucp_context_h context, std::string method)
      : context_(context), method_(std::move(method)) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = watch_number(Watched::kWake, {});
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event);
  }
  UcxCarrier(const UcxCarrier&) = delete;
  UcxCarrier& operator=(const UcxCarrier&) = delete;
  ~UcxCarrier() override {
    links_.clear();
    for (const auto& [number, region] : regions_) ucp_mem_unmap(context_, region);
    ucp_cleanup(context_);
  }
  [[nodiscard]] bool good() const { return epoll_ && wake_; }

  Result<std::string> listen(const std::string& address) override {
    if (listener_) return error(Code::EXISTS, "listens already");
    PLEXRL_ASSIGN(auto opened, listen_on(address));
    PLEXRL_TRY(watch(opened.first.get(), watch_number(Watched::kListener, {})));
    listener_ = std::move(opened.first);
    return std::move(opened.second);
  }
  Result<LinkId> connect(const std::string& address) override {
    PLEXRL_ASSIGN(FrameSocket socket, FrameSocket::connect_to(address));
    return add(std::move(socket));
  }
  Status send_frame(LinkId link, std::string_view bytes) override {
    UcxLink& to = *links_.at(link);
    PLEXRL_TRY(to.socket.send(bytes));
    return watch_socket(to);
  }
  Result<std::string> local_address(LinkId link) override {
    UcxLink& of = *links_.at(link);
    PLEXRL_ASSIGN(std::string address, of.make_address(context_));
    PLEXRL_TRY(watch(of.event_fd(), watch_number(Watched::kWorker, link)));
    return address;
  }
  Status open(LinkId link, std::string_view remote_address) override {
    UcxLink& of = *links_.at(link);
    if (of.event_fd() < 0) return error(Code::INTERNAL, "opened without a local address");
    return of.open(remote_address);
  }
  Status send(LinkId link, std::string_view header, std::string_view payload) override {
    return links_.at(link)->send(header, payload);
  }
  Status send_bulk(LinkId link, std::string_view header, std::span<const std::byte> payload,
                   std::uint64_t tag) override {
    return links_.at(link)->send_bulk(header, payload, tag);
  }
  void close(LinkId link) override {
    const auto found = links_.find(link);
    if (found == links_.end()) return;
    found->second->socket.end_sending();
    links_.erase(found);
  }

  Status add_region(std::uint64_t number, std::span<std::byte> memory) override {
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                        UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
    params.address = memory.data();
    params.length = memory.size();
    params.memory_type = UCS_MEMORY_TYPE_HOST;
    ucp_mem_h region = nullptr;
    const ucs_status_t status = ucp_mem_map(context_, &params, &region);
    if (status != UCS_OK) return ucx_error(Code::NO_CAPACITY, status, "registering memory");
    regions_[number] = region;
    return {};
  }
  void remove_region(std::uint64_t number) override {
    const auto found = regions_.find(number);
    if (found == regions_.end()) return;
    ucp_mem_unmap(context_, found->second);
    regions_.erase(found);
  }

  void turn(Sink& sink, Duration timeout) override {
    bool busy = false;
    for (auto& [id, link] : links_) busy |= link->progress(sink);
    for (auto& [id, link] : links_) busy |= !busy && !link->arm();
    std::array<epoll_event, 64> events{};
    const int count =
        ::epoll_wait(epoll_.get(), events.data(), events.size(), busy ? 0 : milliseconds(timeout));
    for (int i = 0; i < count; ++i) handle(sink, events[static_cast<std::size_t>(i)]);
  }
  void wake() override { ::eventfd_write(wake_.get(), 1); }
  [[nodiscard]] const std::string& method() const override { return method_; }

 private:
  static int milliseconds(Duration timeout) {
    if (timeout.ns < 0) return -1;
    // Up, so that the time has come when it ends.
    return static_cast<int>(std::min<std::int64_t>((timeout.ns + 999'999) / 1'000'000, 60'000));
  }
  Status watch(int fd, std::uint64_t number) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = number;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
    return errno_error(Code::IO, errno, "epoll");
  }
  Status watch_socket(UcxLink& link) {
    const std::uint32_t wanted = EPOLLIN | (link.socket.wants_write() ? EPOLLOUT : 0U);
    if (wanted == link.watched) return {};
    epoll_event event{};
    event.events = wanted;
    event.data.u64 = watch_number(Watched::kSocket, link.id);
    const int what = link.watched == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    if (::epoll_ctl(epoll_.get(), what, link.socket.fd(), &event) != 0)
      return errno_error(Code::IO, errno, "epoll");
    link.watched = wanted;
    return {};
  }
  Result<LinkId> add(FrameSocket socket) {
    const LinkId id{++last_link_};
    auto link = std::make_unique<UcxLink>(id, std::move(socket));
    PLEXRL_TRY(watch_socket(*link));
    links_[id] = std::move(link);
    return id;
  }

  void handle(Sink& sink, const epoll_event& event) {
    const auto kind = static_cast<Watched>(event.data.u64 & 3);
    if (kind == Watched::kWake) {
      eventfd_t count = 0;
      ::eventfd_read(wake_.get(), &count);
    } else if (kind == Watched::kListener) {
      accept(sink);
    } else if (kind == Watched::kSocket) {
      const auto found = links_.find(LinkId{event.data.u64 >> 2});
      if (found != links_.end() && !found->second->told_broken) serve(sink, *found->second);
    }
    // Of kWorker the next turn takes care.
  }
  void accept(Sink& sink) {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) return;  // gone again, or no descriptors: the peer's deadline tells
    const auto id = add(FrameSocket(std::move(fd)));
    if (!id.has_value()) return;
    links_.at(*id)->told_connected = true;
    sink.accepted(*id);
  }
  void serve(Sink& sink, UcxLink& link) {
    Status status = link.socket.wants_write() ? link.socket.flush() : Status();
    if (status.ok() && link.socket.connected() && !std::exchange(link.told_connected, true))
      sink.connected(link.id);
    if (status.ok())
      status = link.socket.receive([&](std::string_view frame) { sink.frame(link.id, frame); });
    if (status.ok()) status = watch_socket(link);
    if (status.ok()) return;
    link.told_broken = true;
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, link.socket.fd(), nullptr);
    sink.broken(link.id, status);
  }

  ucp_context_h context_;
  const std::string method_;
  UniqueFd epoll_{::epoll_create1(EPOLL_CLOEXEC)};
  UniqueFd wake_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  UniqueFd listener_;
  std::map<LinkId, std::unique_ptr<UcxLink>> links_;
  std::map<std::uint64_t, ucp_mem_h> regions_;
  std::uint64_t last_link_ = 0;
};

}  // namespace

Result<std::unique_ptr<Carrier>> make_ucx_carrier(const UcxOptions& options) {
  PLEXRL_ASSIGN(const Config config, make_config(options));
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  ucp_context_h context = nullptr;
  const ucs_status_t status = ucp_init(&params, config.get(), &context);
  if (status != UCS_OK) return ucx_error(Code::UNSUPPORTED, status, "starting");
  const std::string method =
      std::string("UCX ") + ucp_get_version_string() + " (" + transports_of(options) + ")";
  auto carrier = std::make_unique<UcxCarrier>(context, method);
  if (!carrier->good()) return errno_error(Code::UNSUPPORTED, errno, "an epoll descriptor");
  return std::unique_ptr<Carrier>(std::move(carrier));
}

}  // namespace plexrl::transport
