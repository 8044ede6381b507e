// SPDX-License-Identifier: Apache-2.0
// plexrld: the node service of PlexRL. The composition root; plexrld(8) describes the program.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <climits>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "api/request_router.h"
#include "api/server.h"
#include "base/log.h"
#include "config.h"
#include "config/device_files.h"
#include "config/site_config.h"
#include "device/device_backend.h"
#include "device/device_users.h"
#include "engine/engine_process.h"
#include "engine/fake_engine.h"
#include "engine/process_engine.h"
#include "engine/stray_engines.h"
#include "http/front.h"
#include "http/tcp_listener.h"
#include "http/tcp_peers.h"
#include "loop/event_loop.h"
#include "runtime/node_runtime.h"
#include "runtime/socket_reaper.h"
#include "store/blob_store.h"
#include "store/writer_thread.h"
#include "wire/unix_socket.h"

namespace {

using namespace plexrl;  // NOLINT(google-build-using-namespace): the composition root names
                         // everything

// The memfds may be waited for; a running op gets this long to end or yield at SIGTERM.
constexpr Duration kDrainTime{20 * kSecond.ns};
constexpr Duration kDrainPoll{20 * kMillisecond.ns};
// Then what still waits by HTTP is told to come again, and has this long to take that.
constexpr Duration kAnswerTime{kSecond.ns};
constexpr int kHttpBacklog = 1024;

struct Options {
  std::string config_path;
  std::string node;
  std::string run_dir;
  std::string state_dir;
  bool fake_engine = false;
};

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  ::gethostname(name, HOST_NAME_MAX);
  const std::string text = name;
  return text.substr(0, text.find('.'));
}

// 0: go on; else the exit status.
int parse_options(int argc, char** argv, Options& options, bool* done) {
  CLI::App app{"The node service of PlexRL; see plexrld(8)."};
  options.config_path = config::default_config_path();
  options.node = host_name();
  app.add_option("--config", options.config_path, "site configuration, plexrl.yaml(5)");
  app.add_option("--node", options.node, "name of this node as in the configuration");
  app.add_option("--run-dir", options.run_dir, "sockets; default: run_dir of the configuration");
  app.add_option("--state-dir", options.state_dir,
                 "durable state; default: state_dir of the configuration");
  app.add_flag("--fake-engine", options.fake_engine,
               "engines without a model, to measure plexrld alone");
  app.set_version_flag("--version", "plexrld " PACKAGE_VERSION);
  *done = true;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  *done = false;
  return 0;
}

Status apply_log_level(const config::SiteConfig& site) {
  LogLevel level{};
  if (!parse_log_level(site.daemon.log_level, &level))
    return error(Code::INVALID_ARGUMENT, "log_level '%s' is not known",
                 site.daemon.log_level.c_str());
  set_log_level(level);
  return {};
}

Status make_folder(const std::string& path, mode_t mode) {
  std::error_code failed;
  std::filesystem::create_directories(path, failed);
  if (failed) return error(Code::IO, "create '%s': %s", path.c_str(), failed.message().c_str());
  if (::chmod(path.c_str(), mode) != 0)
    return errno_error(Code::IO, errno, "chmod '%s'", path.c_str());
  return {};
}

std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

// Only the cpu backend has its device memory in a pool.
Result<runtime::Pools> create_pools(const state::PoolSizes& sizes, bool with_device) {
  runtime::Pools pools;
  pools.sizes = sizes;
  if (with_device) {
    PLEXRL_ASSIGN(pools.device,
                  device::create_cpu_pool("plexrl-device", sizes.chunk_bytes, sizes.device_chunks));
  }
  PLEXRL_ASSIGN(pools.host,
                device::create_cpu_pool("plexrl-host", sizes.chunk_bytes, sizes.host_chunks));
  return pools;
}

// Listening sockets that systemd (or the lab) holds.
struct PassedSockets {
  UniqueFd frames, http;
};

Result<PassedSockets> passed_sockets() {
  PLEXRL_ASSIGN(auto passed, loop::take_passed_fds());
  PassedSockets sockets;
  for (auto& [name, fd] : passed) {
    UniqueFd& place = name == "plexrld-http.socket" ? sockets.http : sockets.frames;
    if (!place) place = std::move(fd);
  }
  return sockets;
}

// The socket: the one that was passed on when there is one, else our own for everybody; who may do
// what is decided by the peer's uid.
Result<UniqueFd> open_listener(const std::string& path, UniqueFd passed) {
  if (!passed) return wire::listen_unix(path, 0666);
  UniqueFd listener = std::move(passed);
  const int flags = ::fcntl(listener.get(), F_GETFL);
  if (flags < 0 || ::fcntl(listener.get(), F_SETFL, flags | O_NONBLOCK) != 0)
    return errno_error(Code::IO, errno, "the socket that was passed on");
  return listener;
}

// What jobs are told; with a passed socket the path is its owner's choice.
std::string path_of(const UniqueFd& listener, const std::string& fallback) {
  sockaddr_un address{};
  socklen_t size = sizeof address;
  if (::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return fallback;
  return address.sun_family == AF_UNIX && address.sun_path[0] == '/' ? address.sun_path : fallback;
}

Result<runtime::EngineSupervisor::Factory> engine_factory(const Options& options,
                                                          loop::EventLoop& loop,
                                                          const config::SiteConfig& site) {
  using Factory = runtime::EngineSupervisor::Factory;
  if (options.fake_engine) {
    return Factory([&loop](engine::EngineSpec spec, engine::EngineListener& listener) {
      return std::unique_ptr<engine::Engine>(
          engine::make_fake_engine(loop, std::move(spec), listener));
    });
  }
  std::string program = site.daemon.engine_program;
  if (program.empty()) {
    PLEXRL_ASSIGN(program, engine::find_engine_program());
  }
  return Factory([&loop, program](engine::EngineSpec spec, engine::EngineListener& listener) {
    return engine::make_process_engine(loop, program, std::move(spec), listener);
  });
}

// Everything that lives as long as the service, in order of construction.
class Daemon {
 public:
  explicit Daemon(Options options) : options_(std::move(options)) {}

  Result<int> run();

 private:
  Status open();
  Status open_store();
  Status open_devices();
  Status open_runtime();
  Status open_api();
  Status open_http();
  Status open_tcp();
  Status watch_signals();
  Status reload();
  void reload_by_signal();
  void begin_drain();
  void drain();
  [[nodiscard]] bool http_answered(TimePoint now);
  void ready(const Status& status);

  Options options_;
  config::SiteConfig site_;
  PassedSockets passed_;
  std::unique_ptr<loop::EventLoop> loop_;
  std::unique_ptr<store::StateStore> store_;
  std::unique_ptr<store::WriteQueue> writes_;
  std::unique_ptr<store::WriterThread> writer_;
  loop::Timer tick_;
  loop::Timer drain_tick_;
  TimePoint drain_until_;
  TimePoint answer_until_;
  std::unique_ptr<device::DeviceUsers> device_users_;
  std::unique_ptr<runtime::Reaper> reaper_;
  std::unique_ptr<runtime::NodeRuntime> node_;
  std::unique_ptr<api::RequestRouter> router_;
  std::unique_ptr<api::Server> server_;
  std::unique_ptr<http::Front> front_;
  std::unique_ptr<http::HttpServer> http_;
  std::vector<loop::SignalWatch> signals_;
  Status failure_;
};

// Connections and the pidfds of tasks need more than the usual 1,024.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0)
    PLEXRL_LOG(kWarning, "the limit of open files stays: %s", std::strerror(errno));
}

store::BlobStoreOptions::Watch watch_of(loop::EventLoop& loop) {
  return [&loop](int fd, std::function<void()> ready) -> Result<std::shared_ptr<void>> {
    PLEXRL_ASSIGN(auto watch, loop.watch_io(fd, EPOLLIN, [ready = std::move(ready)](std::uint32_t) {
      ready();
    }));
    return std::shared_ptr<void>(std::make_shared<loop::IoWatch>(std::move(watch)));
  };
}

Status Daemon::open() {
  raise_descriptor_limit();
  PLEXRL_ASSIGN(site_, config::load_site_config(options_.config_path, ::geteuid() == 0));
  PLEXRL_TRY(apply_log_level(site_));
  PLEXRL_TRY(open_devices());
  if (options_.run_dir.empty()) options_.run_dir = site_.daemon.run_dir;
  if (options_.state_dir.empty()) options_.state_dir = site_.daemon.state_dir;
  PLEXRL_TRY(make_folder(options_.run_dir, 0755));
  PLEXRL_TRY(make_folder(options_.run_dir + "/engines", 0700));
  PLEXRL_TRY(make_folder(options_.state_dir, 0700));
  PLEXRL_ASSIGN(loop_, loop::EventLoop::create());
  PLEXRL_TRY(open_store());
  PLEXRL_TRY(open_runtime());
  PLEXRL_TRY(open_api());
  PLEXRL_TRY(open_http());
  return watch_signals();
}

Status Daemon::open_store() {
  PLEXRL_ASSIGN(store_, store::open_sqlite_store(options_.state_dir + "/plexrld.db"));
  writes_ = std::make_unique<store::WriteQueue>(
      *store_, [this](std::function<void()> callback) { loop_->post(std::move(callback)); });
  PLEXRL_ASSIGN(writer_, store::WriterThread::start(*writes_));
  return {};
}

// A device that everybody can open is nobody's to share out.
Status Daemon::open_devices() {
  const config::PoolEntry* const pool = site_.pool_of_node(options_.node);
  if (pool == nullptr) return {};  // said by the runtime
  PLEXRL_TRY(config::check_device_files(pool->device_files));
  if (pool->device == "cpu") return {};
  auto users = device::open_nvml_users("libnvidia-ml.so.1");
  if (users) {
    device_users_ = *std::move(users);
  } else {
    PLEXRL_LOG(kWarning, "use of the device without a lease will not be noticed: %s",
               users.error().to_string().c_str());
  }
  return {};
}

Status Daemon::open_runtime() {
  PLEXRL_ASSIGN(tick_, loop_->make_timer([this] { node_->tick(); }));
  PLEXRL_ASSIGN(auto engines, engine_factory(options_, *loop_, site_));
  runtime::NodeOptions options{options_.node, options_.run_dir, options_.state_dir, boot_id()};
  reaper_ = std::make_unique<runtime::SocketReaper>(options_.run_dir + "/plexrl-reap.sock");
  runtime::NodeSeams seams{
      system_clock(),
      *writes_,
      std::move(engines),
      [this](const state::PoolSizes& sizes) {
        const config::PoolEntry* const pool = site_.pool_of_node(options_.node);
        const bool on_cpu = pool == nullptr || pool->device == "cpu";
        return create_pools(sizes, on_cpu || options_.fake_engine);
      },
      [](const engine::EngineSpec& spec) { return ::access(spec.socket_path.c_str(), F_OK) == 0; },
      runtime::random_token,
      [this](TimePoint when) { tick_.arm(when); },
      [this](const std::set<EngineId>& known) {
        engine::end_stray_engines(options_.run_dir + "/engines", known);
      },
      [this](std::function<void()> work) { loop_->post(std::move(work)); },
      [this](const std::string& directory) {
        return store::open_file_blob_store(
            {directory, true, watch_of(*loop_)},
            [this](std::function<void()> done) { loop_->post(std::move(done)); });
      },
      reaper_.get(),
      device_users_.get()};
  PLEXRL_ASSIGN(node_, runtime::NodeRuntime::create(site_, std::move(options), std::move(seams)));
  return {};
}

Status Daemon::open_api() {
  const std::string own_path = options_.run_dir + "/plexrld.sock";
  PLEXRL_ASSIGN(passed_, passed_sockets());
  PLEXRL_ASSIGN(auto listener, open_listener(own_path, std::move(passed_.frames)));
  const std::string path = path_of(listener, own_path);
  router_ = std::make_unique<api::RequestRouter>(*node_, path, [this] { return reload(); });
  server_ = std::make_unique<api::Server>(*loop_, std::move(listener), site_.daemon.max_connections,
                                          *router_);
  router_->connect(*server_);
  return {};
}

Status Daemon::open_http() {
  PLEXRL_ASSIGN(auto listener,
                wire::listen_unix(options_.run_dir + "/http.sock", 0666, kHttpBacklog));
  front_ = std::make_unique<http::Front>(
      *node_, *server_, [this](std::function<void()> work) { loop_->post(std::move(work)); });
  http::HttpLimits limits;
  limits.connections = site_.daemon.max_http_connections;
  PLEXRL_ASSIGN(http_, http::HttpServer::create(*loop_, std::move(listener), *front_, limits));
  PLEXRL_TRY(front_->connect(*http_));
  PLEXRL_TRY(open_tcp());
  router_->set_more_metrics([this] { return front_->metrics(); });
  node_->set_connection_hooks(
      [this] {
        std::set<TenantId> tenants = server_->connected();
        tenants.merge(http_->connected());
        return tenants;
      },
      [this](TenantId tenant) {
        server_->close_tenant(tenant);
        http_->close_tenant(tenant);
      });
  return {};
}

Status Daemon::open_tcp() {
  const std::string& text = site_.daemon.http_address;
  if (text.empty()) {
    if (passed_.http)
      PLEXRL_LOG(kWarning, "plexrld-http.socket is not used: the site file has no http_address");
    passed_.http.reset();
    return {};
  }
  PLEXRL_ASSIGN(const auto address, config::parse_loopback(text));
  PLEXRL_ASSIGN(auto listener, http::open_tcp_listener(address, std::move(passed_.http)));
  PLEXRL_ASSIGN(auto peers, http::TcpPeers::open(listener.get()));
  const auto shared = std::make_shared<http::TcpPeers>(std::move(peers));
  http_->add_tcp(std::move(listener),
                 [shared](int connection) { return shared->find(connection); });
  router_->set_base_url("http://" + text);
  PLEXRL_LOG(kInfo, "HTTP at %s", text.c_str());
  return {};
}

Status Daemon::watch_signals() {
  ::signal(SIGPIPE, SIG_IGN);
  for (const int signal : {SIGTERM, SIGINT}) {
    PLEXRL_ASSIGN(auto watch, loop_->watch_signal(signal, [this] { begin_drain(); }));
    signals_.push_back(std::move(watch));
  }
  PLEXRL_ASSIGN(auto watch, loop_->watch_signal(SIGHUP, [this] { reload_by_signal(); }));
  signals_.push_back(std::move(watch));
  return {};
}

// Takes connections from now on.
void Daemon::ready(const Status& status) {
  failure_ = status.ok() ? server_->start() : status;
  if (failure_.ok()) failure_ = http_->start();
  if (!failure_.ok()) return loop_->exit(1);
  PLEXRL_LOG(kInfo, "node %s, pool %s: ready", options_.node.c_str(), node_->pool().name.c_str());
  loop::notify_systemd("READY=1");
}

Status Daemon::reload() {
  PLEXRL_ASSIGN(auto fresh, config::load_site_config(options_.config_path, ::geteuid() == 0));
  PLEXRL_TRY(node_->reload(fresh));
  PLEXRL_TRY(apply_log_level(fresh));
  http_->set_connections(fresh.daemon.max_http_connections);
  PLEXRL_LOG(kInfo, "configuration taken from %s", options_.config_path.c_str());
  return {};
}

void Daemon::reload_by_signal() {
  if (const Status status = reload(); !status.ok())
    PLEXRL_LOG(kError, "reload: %s; nothing was changed", status.to_string().c_str());
}

void Daemon::begin_drain() {
  if (drain_until_.ns != 0) return;
  loop::notify_systemd("STOPPING=1");
  server_->stop_accepting();
  http_->drain();
  drain_until_ = system_clock().now() + kDrainTime;
  drain();
}

void Daemon::drain() {
  const TimePoint now = system_clock().now();
  if ((node_->drain() || now >= drain_until_) && http_answered(now)) {
    node_->detach();
    return loop_->exit(0);
  }
  drain_tick_.arm(now + kDrainPoll);
}

bool Daemon::http_answered(TimePoint now) {
  http_->refuse_waiting(error(Code::UNAVAILABLE, "plexrld is going down for a restart; retry"));
  if (answer_until_.ns == 0) answer_until_ = now + kAnswerTime;
  return http_->idle() || now >= answer_until_;
}

Result<int> Daemon::run() {
  PLEXRL_TRY(open());
  PLEXRL_ASSIGN(drain_tick_, loop_->make_timer([this] { drain(); }));
  PLEXRL_ASSIGN(const bool watched, loop_->enable_watchdog());
  if (watched) PLEXRL_LOG(kDebug, "watchdog is on");
  PLEXRL_TRY(node_->start([this](const Status& status) { ready(status); }));
  PLEXRL_ASSIGN(const int code, loop_->run());
  PLEXRL_TRY(failure_);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  set_log_name("plexrld");
  Options options;
  bool done = false;
  const int usage = parse_options(argc, argv, options, &done);
  if (done) return usage;
  const auto code = Daemon(std::move(options)).run();
  if (code) return *code;
  PLEXRL_LOG(kError, "%s", code.error().to_string().c_str());
  return 1;
}
