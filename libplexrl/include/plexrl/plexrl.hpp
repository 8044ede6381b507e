// SPDX-License-Identifier: Apache-2.0
// libplexrl for C++17 and later: RAII over plexrl.h, header only.
//
//   plexrl::Session session = plexrl::Session::connect();
//   plexrl::Model policy = session.create_model({.name = "policy"});
//   auto rollouts = policy.generate({.prompts = prompts, .max_new_tokens = 16}).get();
//
// Failure: every call throws plexrl::Error, which carries the status code, so that straight code
// stays straight; catch it where you can do something about it (retryable() says whether the same
// call may succeed later). Destructors do not throw. Threads and order: as in plexrl.h. Operations
// are futures: submitting returns at once, get() waits and takes the result. Dropping a Future does
// not cancel it. A Session may be destroyed before its Models and Futures; those then fail with
// UNAVAILABLE.
#ifndef PLEXRL_PLEXRL_HPP
#define PLEXRL_PLEXRL_HPP

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "plexrl/plexrl.h"

namespace plexrl {

class Error : public std::runtime_error {
 public:
  explicit Error(const plexrl_error& e)
      : std::runtime_error(std::string(plexrl_status_name(e.code)) + ": " + e.text),
        code_(e.code),
        retry_after_(e.retry_after_ms) {}
  [[nodiscard]] plexrl_status code() const noexcept { return code_; }
  [[nodiscard]] std::chrono::milliseconds retry_after() const noexcept { return retry_after_; }
  [[nodiscard]] bool retryable() const noexcept {
    return code_ == PLEXRL_BUSY || code_ == PLEXRL_TIMEOUT || code_ == PLEXRL_UNAVAILABLE ||
           code_ == PLEXRL_ENGINE_DOWN;
  }

 private:
  plexrl_status code_;
  std::chrono::milliseconds retry_after_;
};

namespace detail {

// Calls f(&error) and throws what it reports.
template <class Call>
void check(Call call) {
  plexrl_error error{};
  if (call(&error) != PLEXRL_OK) throw Error(error);
}

struct Free {
  void operator()(plexrl_session* s) const noexcept { plexrl_disconnect(s); }
  void operator()(plexrl_model* m) const noexcept { plexrl_model_release(m); }
  void operator()(plexrl_op* o) const noexcept { plexrl_op_free(o); }
  void operator()(plexrl_lease* l) const noexcept { plexrl_lease_release(l); }
  void operator()(plexrl_region* r) const noexcept { plexrl_region_destroy(r, nullptr); }
  void operator()(char* s) const noexcept { plexrl_string_free(s); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

// An argument that may be left out.
inline const char* or_null(const std::string& text) {
  return text.empty() ? nullptr : text.c_str();
}

}  // namespace detail

using Tokens = std::vector<std::int32_t>;

struct Sequence {
  Tokens tokens;
  std::vector<float> logprobs;
  bool stopped = false;  // by a stop token, which is the last token
};

// One datum of a loss; see plexrl_datum. Arrays that the loss does not read may be empty.
struct Datum {
  Tokens tokens{};
  Tokens target_tokens{};
  std::vector<float> weights{};
  std::vector<float> logprobs{};
  std::vector<float> advantages{};
};

struct TrainResult {
  double loss_sum = 0;
  std::uint64_t token_count = 0;
  double ratio_mean = 0;
  double clip_fraction = 0;
  double logprob_drop_mean = 0;
  std::vector<std::vector<float>> logprobs;  // of the targets, per datum
  double entropy_mean = 0;                   // nats, of the predictions that count
};
struct OptimResult {
  std::uint64_t step = 0;
  double grad_norm = 0;
};
// Of publish (version, step), save (step, bytes, sha256) and load (step, sha256).
struct SaveResult {
  std::uint64_t version = 0;
  std::uint64_t step = 0;
  std::uint64_t bytes = 0;
  std::string sha256;
};
struct Timing {
  std::chrono::nanoseconds queued{}, other_tenants{}, switching{}, run{};
};

// An operation under way, whatever its result. Movable.
class Operation {
 public:
  explicit Operation(plexrl_op* op) : op_(op) {}

  [[nodiscard]] bool done() const {
    int done = 0;
    detail::check([&](plexrl_error* e) { return plexrl_op_poll(op_.get(), &done, e); });
    return done != 0;
  }
  // Until the end; throws the operation's own error.
  void wait() const {
    detail::check([&](plexrl_error* e) { return plexrl_op_wait(op_.get(), -1, e); });
  }
  // False when the time is up first; the operation goes on.
  [[nodiscard]] bool wait_for(std::chrono::milliseconds timeout) const {
    plexrl_error error{};
    const auto ms = timeout.count() < 0 ? 0 : static_cast<std::int64_t>(timeout.count());
    const plexrl_status status = plexrl_op_wait(op_.get(), ms, &error);
    if (status == PLEXRL_TIMEOUT && !done()) return false;
    if (status != PLEXRL_OK) throw Error(error);
    return true;
  }
  void cancel() const {
    detail::check([&](plexrl_error* e) { return plexrl_op_cancel(op_.get(), e); });
  }
  // Why it waits, in one sentence.
  [[nodiscard]] std::string explain() const {
    char text[512];
    detail::check(
        [&](plexrl_error* e) { return plexrl_op_explain(op_.get(), text, sizeof text, e); });
    return text;
  }
  [[nodiscard]] Timing timing() const {
    plexrl_timing t{};
    t.size = sizeof t;
    detail::check([&](plexrl_error* e) { return plexrl_op_get_timing(op_.get(), &t, e); });
    using Ns = std::chrono::nanoseconds;
    return {Ns(t.queued_ns), Ns(t.other_tenants_ns), Ns(t.switch_ns), Ns(t.run_ns)};
  }
  [[nodiscard]] plexrl_op* handle() const noexcept { return op_.get(); }

 private:
  detail::Owned<plexrl_op> op_;
};

namespace detail {

inline std::vector<std::vector<float>> read_rows(plexrl_op* op) {
  const plexrl_floats* rows = nullptr;
  std::size_t count = 0;
  check([&](plexrl_error* e) { return plexrl_op_get_rows(op, &rows, &count, e); });
  std::vector<std::vector<float>> result;
  result.reserve(count);
  for (std::size_t i = 0; i < count; ++i)
    result.emplace_back(rows[i].data, rows[i].data + rows[i].count);
  return result;
}

// read<T>(op): the result of a finished operation as a T.
inline void read(plexrl_op* op, std::vector<Sequence>& result) {
  const plexrl_sequence* sequences = nullptr;
  std::size_t count = 0;
  check([&](plexrl_error* e) { return plexrl_op_get_sequences(op, &sequences, &count, e); });
  result.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const plexrl_sequence& s = sequences[i];
    result.push_back({Tokens(s.tokens, s.tokens + s.count),
                      std::vector<float>(s.logprobs, s.logprobs + s.count), s.finish_stop != 0});
  }
}
inline void read(plexrl_op* op, std::vector<std::vector<float>>& result) { result = read_rows(op); }
inline void read(plexrl_op* op, TrainResult& result) {
  plexrl_train_result r{};
  r.size = sizeof r;
  check([&](plexrl_error* e) { return plexrl_op_get_train_result(op, &r, e); });
  result = {r.loss_sum,          r.token_count, r.ratio_mean,  r.clip_fraction,
            r.logprob_drop_mean, read_rows(op), r.entropy_mean};
}
inline void read(plexrl_op* op, OptimResult& result) {
  plexrl_optim_result r{};
  r.size = sizeof r;
  check([&](plexrl_error* e) { return plexrl_op_get_optim_result(op, &r, e); });
  result = {r.step, r.grad_norm};
}
inline void read(plexrl_op* op, SaveResult& result) {
  plexrl_save_result r{};
  r.size = sizeof r;
  check([&](plexrl_error* e) { return plexrl_op_get_save_result(op, &r, e); });
  result = {r.version, r.step, r.bytes, r.sha256};
}

}  // namespace detail

// An operation whose result is a T.
template <class T>
class Future : public Operation {
 public:
  using Operation::Operation;
  // Waits and returns the result; may be called again.
  [[nodiscard]] T get() const {
    wait();
    T result{};
    detail::read(handle(), result);
    return result;
  }
};

struct GenerateOptions {
  std::uint64_t version = 0;  // 0 = the base without adapter
  std::vector<Tokens> prompts{};
  std::uint32_t samples_per_prompt = 1;  // prompt p, sample s is row p * n + s
  std::uint32_t max_new_tokens = 64;
  float temperature = 1.0F;  // 0 = greedy
  float top_p = 1.0F;
  std::uint64_t seed = 0;
  Tokens stop_tokens{};
};
struct ForwardBackwardOptions {
  plexrl_loss loss = PLEXRL_LOSS_CROSS_ENTROPY;
  std::vector<Datum> data{};
  double clip_low = 0.8;  // ppo and cispo
  double clip_high = 1.2;
  bool forward_only = false;
  double beta = 0.01;  // dro only
};
struct OptimOptions {
  double learning_rate = 0;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double weight_decay = 0;
  double grad_clip_norm = 0;  // global norm; 0 = none
};

struct ModelInfo {
  std::uint64_t id = 0;
  std::string name, base, train_mode, tokenizer;
  std::uint32_t lora_rank = 0, vocab_size = 0, max_positions = 0;
  std::uint64_t parameters = 0, trainable_parameters = 0;
  std::uint64_t step = 0, next_seq = 0, latest_version = 0;
};

class Model {
 public:
  explicit Model(plexrl_model* model) : model_(model) {}

  // Asks the service, so that step and latest_version are current.
  [[nodiscard]] ModelInfo info() const {
    plexrl_model_info i{};
    i.size = sizeof i;
    detail::check([&](plexrl_error* e) { return plexrl_model_get_info(model_.get(), &i, e); });
    return {i.id,        i.name,       i.base,          i.train_mode, i.tokenizer,
            i.lora_rank, i.vocab_size, i.max_positions, i.parameters, i.trainable_parameters,
            i.step,      i.next_seq,   i.latest_version};
  }

  [[nodiscard]] Future<std::vector<Sequence>> generate(const GenerateOptions& options) const {
    const std::vector<plexrl_tokens> prompts = views(options.prompts);
    plexrl_generate_options o{};
    o.size = sizeof o;
    o.version = options.version;
    o.prompts = prompts.data();
    o.prompt_count = prompts.size();
    o.samples_per_prompt = options.samples_per_prompt;
    o.max_new_tokens = options.max_new_tokens;
    o.temperature = options.temperature;
    o.top_p = options.top_p;
    o.seed = options.seed;
    o.stop_tokens = options.stop_tokens.data();
    o.stop_token_count = options.stop_tokens.size();
    return submit<std::vector<Sequence>>(
        [&](plexrl_op** op, plexrl_error* e) { return plexrl_generate(model_.get(), &o, op, e); });
  }
  // Log-probabilities of each sequence's tokens from the second on.
  [[nodiscard]] Future<std::vector<std::vector<float>>> logprobs(
      std::uint64_t version, const std::vector<Tokens>& sequences) const {
    const std::vector<plexrl_tokens> rows = views(sequences);
    return submit<std::vector<std::vector<float>>>([&](plexrl_op** op, plexrl_error* e) {
      return plexrl_logprobs(model_.get(), version, rows.data(), rows.size(), op, e);
    });
  }
  [[nodiscard]] Future<TrainResult> forward_backward(const ForwardBackwardOptions& options) const {
    const std::vector<plexrl_datum> data = views(options.data);
    plexrl_forward_backward_options o{};
    o.size = sizeof o;
    o.loss = options.loss;
    o.data = data.data();
    o.datum_count = data.size();
    o.clip_low = options.clip_low;
    o.clip_high = options.clip_high;
    o.forward_only = options.forward_only ? 1 : 0;
    // Here 0 is a value; in C it asks for the default.
    o.beta = options.beta == 0 ? std::numeric_limits<double>::min() : options.beta;
    return submit<TrainResult>([&](plexrl_op** op, plexrl_error* e) {
      return plexrl_forward_backward(model_.get(), &o, op, e);
    });
  }
  [[nodiscard]] Future<OptimResult> optim_step(const OptimOptions& options) const {
    plexrl_optim_options o{};
    o.size = sizeof o;
    o.learning_rate = options.learning_rate;
    o.beta1 = options.beta1;
    o.beta2 = options.beta2;
    o.eps = options.eps;
    o.weight_decay = options.weight_decay;
    o.grad_clip_norm = options.grad_clip_norm;
    return submit<OptimResult>([&](plexrl_op** op, plexrl_error* e) {
      return plexrl_optim_step(model_.get(), &o, op, e);
    });
  }
  // Makes the current weights a new version for sampling.
  [[nodiscard]] Future<SaveResult> publish() const {
    return submit<SaveResult>(
        [&](plexrl_op** op, plexrl_error* e) { return plexrl_publish(model_.get(), op, e); });
  }
  [[nodiscard]] Future<SaveResult> save(const std::string& name) const {
    return submit<SaveResult>([&](plexrl_op** op, plexrl_error* e) {
      return plexrl_save(model_.get(), name.c_str(), op, e);
    });
  }
  // fd is duplicated.
  [[nodiscard]] Future<SaveResult> save_fd(int fd, plexrl_file_format format) const {
    return submit<SaveResult>([&](plexrl_op** op, plexrl_error* e) {
      return plexrl_save_fd(model_.get(), fd, format, op, e);
    });
  }
  [[nodiscard]] Future<SaveResult> load(const std::string& name) const {
    return submit<SaveResult>([&](plexrl_op** op, plexrl_error* e) {
      return plexrl_load(model_.get(), name.c_str(), op, e);
    });
  }
  [[nodiscard]] Future<SaveResult> load_fd(int fd, bool with_optimizer) const {
    return submit<SaveResult>([&](plexrl_op** op, plexrl_error* e) {
      return plexrl_load_fd(model_.get(), fd, with_optimizer ? 1 : 0, op, e);
    });
  }
  // Ends the model and frees its memory; the handle is of no use afterwards.
  void remove() const {
    detail::check([&](plexrl_error* e) { return plexrl_model_delete(model_.get(), e); });
  }
  [[nodiscard]] plexrl_model* handle() const noexcept { return model_.get(); }

 private:
  static std::vector<plexrl_tokens> views(const std::vector<Tokens>& rows) {
    std::vector<plexrl_tokens> result;
    result.reserve(rows.size());
    for (const Tokens& row : rows) result.push_back({row.data(), row.size()});
    return result;
  }
  // An array of another length than tokens cannot be expressed in C; say so here.
  template <class Array>
  static auto column(const Datum& datum, const Array& array, const char* name) {
    if (!array.empty() && array.size() != datum.tokens.size()) {
      plexrl_error error{PLEXRL_INVALID_ARGUMENT, 0, {}};
      const std::string text = std::string("datum: ") + name + " has " +
                               std::to_string(array.size()) + " elements, tokens has " +
                               std::to_string(datum.tokens.size());
      text.copy(error.text, sizeof error.text - 1);
      throw Error(error);
    }
    return array.empty() ? nullptr : array.data();
  }
  static std::vector<plexrl_datum> views(const std::vector<Datum>& data) {
    std::vector<plexrl_datum> result;
    result.reserve(data.size());
    for (const Datum& d : data)
      result.push_back({d.tokens.size(), d.tokens.data(),
                        column(d, d.target_tokens, "target_tokens"),
                        column(d, d.weights, "weights"), column(d, d.logprobs, "logprobs"),
                        column(d, d.advantages, "advantages")});
    return result;
  }
  template <class T, class Call>
  static Future<T> submit(Call call) {
    plexrl_op* op = nullptr;
    detail::check([&](plexrl_error* e) { return call(&op, e); });
    return Future<T>(op);
  }

  detail::Owned<plexrl_model> model_;
};

// Empty strings and zeros mean: the environment's, the grant's.
struct ConnectOptions {
  std::optional<std::string> socket_path{};
  std::optional<std::string> token{};  // "" = none: reading only
  std::string client_name{};
  std::chrono::milliseconds timeout{0};  // 0 = 30 s
};
struct ModelOptions {
  std::string name = "default";
  std::string base{};
  std::string train_mode{};
  std::uint32_t lora_rank = 0;
  std::uint64_t seed = 0;
};
struct SessionInfo {
  std::uint32_t job_id = 0;
  std::uint64_t tenant = 0;
  std::string node{};
  std::vector<std::string> bases{};
  std::string train_mode{};
  std::uint32_t lora_rank = 0;
};

// Memory that survives a yield; see plexrl_region_create. Destroy it before its Lease.
class Region {
 public:
  [[nodiscard]] void* address() const noexcept { return plexrl_region_address(region_.get()); }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return plexrl_region_bytes(region_.get()); }
  [[nodiscard]] plexrl_region* handle() const noexcept { return region_.get(); }

 private:
  friend class Lease;
  explicit Region(plexrl_region* region) : region_(region) {}
  detail::Owned<plexrl_region> region_;
};

struct LeaseOptions {
  std::uint64_t device_bytes = 0;      // 0 = all of the device
  std::chrono::milliseconds limit{0};  // 0 = the site's
  bool cooperative = true;
  std::vector<std::int32_t> pids{};
};

// The device group for a process with an engine of its own; see plexrl.h. The destructor gives it
// up.
class Lease {
 public:
  // False when it is still queued after `timeout`.
  [[nodiscard]] bool wait_for(std::chrono::milliseconds timeout) {
    plexrl_error error{};
    const plexrl_status status = plexrl_lease_wait(lease_.get(), timeout.count(), &error);
    if (status != PLEXRL_OK && status != PLEXRL_TIMEOUT) throw Error(error);
    return status == PLEXRL_OK;
  }
  void wait() {
    detail::check([&](plexrl_error* e) { return plexrl_lease_wait(lease_.get(), -1, e); });
  }
  // The time that is left to yield, when the holder is asked to.
  [[nodiscard]] std::optional<std::chrono::milliseconds> should_yield() {
    int asked = 0;
    std::int64_t within_ms = 0;
    detail::check([&](plexrl_error* e) {
      return plexrl_lease_should_yield(lease_.get(), &asked, &within_ms, e);
    });
    if (asked == 0) return std::nullopt;
    return std::chrono::milliseconds(within_ms);
  }
  // Gives the device up and queues again; then wait().
  void yield() {
    detail::check([&](plexrl_error* e) { return plexrl_lease_yield(lease_.get(), e); });
  }
  [[nodiscard]] std::string explain() {
    char text[1024];
    detail::check(
        [&](plexrl_error* e) { return plexrl_lease_explain(lease_.get(), text, sizeof text, e); });
    return text;
  }
  [[nodiscard]] Region create_region(std::uint64_t bytes) {
    plexrl_region* region = nullptr;
    detail::check(
        [&](plexrl_error* e) { return plexrl_region_create(lease_.get(), bytes, &region, e); });
    return Region(region);
  }
  // In the memory of a GPU; its address is the device's.
  [[nodiscard]] Region create_cuda_region(std::uint64_t bytes, int device = 0) {
    plexrl_region* region = nullptr;
    detail::check([&](plexrl_error* e) {
      return plexrl_region_create_cuda(lease_.get(), bytes, device, &region, e);
    });
    return Region(region);
  }
  [[nodiscard]] plexrl_lease* handle() const noexcept { return lease_.get(); }

 private:
  friend class Session;
  explicit Lease(plexrl_lease* lease) : lease_(lease) {}
  detail::Owned<plexrl_lease> lease_;
};

class Session {
 public:
  [[nodiscard]] static Session connect(const ConnectOptions& options = {}) {
    plexrl_connect_options o{};
    o.size = sizeof o;
    o.socket_path = options.socket_path ? options.socket_path->c_str() : nullptr;
    o.token = options.token ? options.token->c_str() : nullptr;
    o.client_name = detail::or_null(options.client_name);
    o.timeout_ms = options.timeout.count();
    plexrl_session* session = nullptr;
    detail::check([&](plexrl_error* e) { return plexrl_connect(&o, &session, e); });
    return Session(session);
  }

  [[nodiscard]] SessionInfo info() const {
    plexrl_session_info i{};
    i.size = sizeof i;
    detail::check([&](plexrl_error* e) { return plexrl_session_get_info(session_.get(), &i, e); });
    return {i.job_id,     i.tenant,
            i.node,       std::vector<std::string>(i.bases, i.bases + i.base_count),
            i.train_mode, i.lora_rank};
  }
  [[nodiscard]] Model create_model(const ModelOptions& options) const {
    plexrl_model_options o{};
    o.size = sizeof o;
    o.name = options.name.c_str();
    o.base = detail::or_null(options.base);
    o.train_mode = detail::or_null(options.train_mode);
    o.lora_rank = options.lora_rank;
    o.seed = options.seed;
    plexrl_model* model = nullptr;
    detail::check(
        [&](plexrl_error* e) { return plexrl_model_create(session_.get(), &o, &model, e); });
    return Model(model);
  }
  // Queued; call wait().
  [[nodiscard]] Lease acquire_lease(const LeaseOptions& options = {}) const {
    plexrl_lease_options o{};
    o.size = sizeof o;
    o.device_bytes = options.device_bytes;
    o.limit_ms = options.limit.count();
    o.cooperative = options.cooperative ? 1 : 0;
    o.pids = options.pids.data();
    o.pid_count = options.pids.size();
    plexrl_lease* lease = nullptr;
    detail::check(
        [&](plexrl_error* e) { return plexrl_lease_acquire(session_.get(), &o, &lease, e); });
    return Lease(lease);
  }
  // "status", "jobs", "ops", "report", "metrics", "profiles": one JSON document.
  [[nodiscard]] std::string query(const std::string& kind, std::uint32_t job_id = 0) const {
    char* json = nullptr;
    detail::check([&](plexrl_error* e) {
      return plexrl_query(session_.get(), kind.c_str(), job_id, &json, e);
    });
    const detail::Owned<char> owner(json);
    return json;
  }
  [[nodiscard]] plexrl_session* handle() const noexcept { return session_.get(); }

 private:
  explicit Session(plexrl_session* session) : session_(session) {}
  detail::Owned<plexrl_session> session_;
};

}  // namespace plexrl

#endif
