// SPDX-License-Identifier: Apache-2.0
// FakeService: plexrld as far as a client sees it, in a thread of the test. Keeps models and
// exactly-once training streams; a script decides what happens to each submitted operation.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <thread>

#include "wire/message.h"
#include "wire/unix_socket.h"

namespace plexrl::fakes {

enum class Verdict {
  kAnswer,
  kHold,         // accepted, answered by release() or when asked again after unhold
  kBusy,         // refused, retry after 20 ms
  kUnavailable,  // refused, retry after 20 ms
  kFail,         // INVALID_ARGUMENT, number used up
  kDropBefore,   // connection closed, nothing accepted
  kDropAfter,    // executed, connection closed before the answer
  kWrongKind,    // answered with another result
  kGarbage,      // bytes that are no frame
};

class FakeService {
 public:
  using Script = std::function<Verdict(const wire::SubmitOpT& submit, std::size_t nth)>;

  FakeService() {
    char name[] = "/tmp/plexrl-fake-XXXXXX";
    if (::mkdtemp(name) == nullptr) std::abort();
    dir_ = name;
    start();
  }
  ~FakeService() {
    stop();
    std::filesystem::remove_all(dir_);
  }

  [[nodiscard]] std::string socket() const { return dir_ + "/s"; }

  void start() {
    auto made = wire::listen_unix(socket(), 0600);
    if (!made) std::abort();
    listener_ = std::move(*made);
    running_ = true;
    thread_ = std::thread([this] { run(); });
  }
  // As a killed daemon: connections break, nobody listens.
  void stop() {
    if (!thread_.joinable()) return;
    running_ = false;
    thread_.join();
    connections_.clear();
    listener_.reset();
    std::filesystem::remove(socket());
  }
  // Forgets what it had taken, as with an empty state directory.
  void forget() {
    const std::lock_guard lock(mutex_);
    models_.clear();
  }

  void script(Script s) {
    const std::lock_guard lock(mutex_);
    script_ = std::move(s);
  }
  void accept_token(std::string token) {
    const std::lock_guard lock(mutex_);
    token_ = std::move(token);
  }
  // Answers everything that was held.
  void release() { release_ = true; }

  // Sequence numbers in the order of execution, each at most once if all is well.
  [[nodiscard]] std::vector<std::uint64_t> executed() const {
    const std::lock_guard lock(mutex_);
    return executed_;
  }
  [[nodiscard]] std::vector<wire::SubmitOpT> submitted() const {
    const std::lock_guard lock(mutex_);
    return submitted_;
  }
  [[nodiscard]] std::size_t cancels() const { return cancels_; }
  [[nodiscard]] std::size_t hellos() const { return hellos_; }
  [[nodiscard]] std::string file_contents() const {
    const std::lock_guard lock(mutex_);
    return file_contents_;
  }
  [[nodiscard]] wire::OpenJobT opened() const {
    const std::lock_guard lock(mutex_);
    return opened_;
  }

 private:
  struct Model {
    wire::ModelInfoT info;
    std::map<std::uint64_t, bool> executed;  // by seq
  };
  struct Held {
    std::uint64_t request_id;
    wire::SubmitOpT submit;
  };
  struct Connection {
    explicit Connection(UniqueFd fd) : channel(std::move(fd)) {}
    wire::Channel channel;
    std::vector<Held> held;
    bool drop = false;
  };

  void run() {
    while (running_) {
      std::vector<pollfd> fds{{listener_.get(), POLLIN, 0}};
      for (Connection& c : connections_)
        fds.push_back({c.channel.fd(),
                       static_cast<short>(POLLIN | (c.channel.wants_write() ? POLLOUT : 0)), 0});
      ::poll(fds.data(), fds.size(), 5);
      const std::lock_guard lock(mutex_);
      if (auto accepted = wire::accept_unix(listener_.get()))
        connections_.emplace_back(std::move(*accepted));
      const bool release = release_.exchange(false);
      for (Connection& c : connections_) turn(c, release);
      connections_.remove_if([](const Connection& c) { return c.drop; });
    }
  }

  void turn(Connection& c, bool release) {
    static_cast<void>(c.channel.flush());
    const Status status = c.channel.receive();
    while (auto frame = c.channel.next()) {
      auto message = wire::decode_message(frame->payload);
      if (!message) std::abort();
      if (!c.drop) handle(c, *message, frame->fds);
    }
    if (release)
      for (Held& held : std::exchange(c.held, {})) answer(c, held.request_id, held.submit);
    if (!status.ok()) c.drop = true;
  }

  template <class BodyT>
  void reply(Connection& c, std::uint64_t id, BodyT body) {
    static_cast<void>(c.channel.send(wire::encode(wire::message(id, std::move(body)))));
  }
  void fail(Connection& c, std::uint64_t id, Code code, const char* text, std::uint32_t retry = 0) {
    reply(c, id, wire::to_failure(Status(code, text), retry));
  }

  void handle(Connection& c, wire::MessageT& m, std::vector<UniqueFd>& fds) {
    using wire::Body;
    switch (m.body.type) {
      case Body::Hello:
        return hello(c, m.request_id, *m.body.AsHello());
      case Body::CreateModel:
        return reply(c, m.request_id, model_of(*m.body.AsCreateModel()).info);
      case Body::DeleteModel:
        models_.clear();
        return reply(c, m.request_id, wire::DoneT{});
      case Body::SubmitOp:
        return submit(c, m.request_id, *m.body.AsSubmitOp(), fds);
      case Body::CancelOp:
        return cancel(c, m.request_id, m.body.AsCancelOp()->target);
      case Body::ExplainOp: {
        wire::TextT text;
        text.text = "It waits for job 7.";
        return reply(c, m.request_id, text);
      }
      case Body::Query: {
        wire::JsonT json;
        json.text = "{\"job\":" + std::to_string(m.body.AsQuery()->job_id) + "}";
        return reply(c, m.request_id, json);
      }
      case Body::OpenJob:
        opened_ = *m.body.AsOpenJob();
        return reply(c, m.request_id, wire::DoneT{});
      case Body::AttachTask: {
        wire::AttachReplyT attached;
        attached.socket = socket();
        attached.token = "secret";
        return reply(c, m.request_id, attached);
      }
      case Body::CloseJob:
        return fail(c, m.request_id, Code::NOT_FOUND, "no such job");
      default:
        return fail(c, m.request_id, Code::UNSUPPORTED, "not in the fake");
    }
  }

  void hello(Connection& c, std::uint64_t id, const wire::HelloT& hello) {
    ++hellos_;
    if (!token_.empty() && hello.token != token_)
      return fail(c, id, Code::AUTH, "token not accepted");
    wire::HelloReplyT r;
    r.protocol = wire::kProtocolVersion;
    r.node = "node1";
    r.tenant = 5;
    r.job_id = 99;
    r.models = {"tiny", "other"};
    r.mode = wire::TrainMode::Lora;
    r.lora_rank = 8;
    r.max_frame_bytes = 1U << 20;
    reply(c, id, r);
  }

  Model& model_of(const wire::CreateModelT& create) {
    Model& model = models_[create.name];
    if (model.info.model != 0) return model;
    model.info.model = ++last_model_;
    model.info.name = create.name;
    model.info.base = create.base;
    model.info.mode = create.mode;
    model.info.lora_rank = create.lora_rank;
    model.info.vocab_size = 32;
    model.info.next_seq = 1;
    model.info.tokenizer = "{}";
    return model;
  }
  Model* find(std::uint64_t id) {
    for (auto& [name, model] : models_)
      if (model.info.model == id) return &model;
    return nullptr;
  }

  void submit(Connection& c, std::uint64_t id, wire::SubmitOpT& submit,
              std::vector<UniqueFd>& fds) {
    submitted_.push_back(submit);
    Model* model = find(submit.model);
    if (model == nullptr) return fail(c, id, Code::NOT_FOUND, "no such model");
    if (submit.seq != 0 && submit.seq < model->info.next_seq) return answer(c, id, submit);
    const Verdict verdict = script_ ? script_(submit, submitted_.size()) : Verdict::kAnswer;
    switch (verdict) {
      case Verdict::kBusy:
        return fail(c, id, Code::BUSY, "queue full", 20);
      case Verdict::kUnavailable:
        return fail(c, id, Code::UNAVAILABLE, "draining", 20);
      case Verdict::kDropBefore:
        c.drop = true;
        return;
      case Verdict::kGarbage: {
        const char bytes[32] = "this is not a frame of plexrl..";
        if (::write(c.channel.fd(), bytes, sizeof bytes) < 0) std::abort();
        return;
      }
      default:
        break;
    }
    if (!fds.empty()) write_file(fds[0].get());
    if (submit.seq != 0) {
      executed_.push_back(submit.seq);
      model->info.next_seq = std::max(model->info.next_seq, submit.seq + 1);
    }
    if (verdict == Verdict::kDropAfter)
      c.drop = true;
    else if (verdict == Verdict::kFail)
      fail(c, id, Code::INVALID_ARGUMENT, "the script says no");
    else if (verdict == Verdict::kHold)
      c.held.push_back({id, submit});
    else
      answer(c, id, submit, verdict == Verdict::kWrongKind);
  }

  void write_file(int fd) {
    if (::write(fd, "saved", 5) == 5) file_contents_ = "saved";
  }

  void answer(Connection& c, std::uint64_t id, const wire::SubmitOpT& submit, bool wrong = false) {
    wire::OpReplyT r;
    r.op = 1000 + submit.seq;
    r.timing = std::make_unique<wire::OpTimingT>();
    r.timing->run_ns = 77;
    if (wrong)
      r.value.Set(wire::LoadResultT{});
    else
      fill(r.value, submit);
    reply(c, id, std::move(r));
  }

  static void fill(wire::OpValueUnion& value, const wire::SubmitOpT& submit) {
    switch (submit.args.type) {
      case wire::OpArgs::GenerateArgs:
        return value.Set(generated(*submit.args.AsGenerateArgs()));
      case wire::OpArgs::LogprobsArgs: {
        wire::LogprobsResultT r;
        r.rows.push_back(std::make_unique<wire::FloatRowT>());
        r.rows[0]->values = {-1.0F, -2.0F};
        return value.Set(std::move(r));
      }
      case wire::OpArgs::ForwardBackwardArgs: {
        wire::ForwardBackwardResultT r;
        r.loss_sum = 2.5;
        r.entropy_mean = static_cast<double>(submit.args.AsForwardBackwardArgs()->beta);
        r.token_count = 3;
        r.logprobs.push_back(std::make_unique<wire::FloatRowT>());
        r.logprobs[0]->values = {-0.5F};
        return value.Set(std::move(r));
      }
      case wire::OpArgs::OptimStepArgs: {
        wire::OptimStepResultT r;
        r.step = submit.seq;
        r.grad_norm = 0.25;
        return value.Set(r);
      }
      case wire::OpArgs::SaveArgs: {
        wire::SaveResultT r;
        r.version = 4;
        r.bytes = 10;
        r.sha256 = "abc";
        return value.Set(r);
      }
      default:
        return value.Set(wire::LoadResultT{});
    }
  }

  // Echoes each prompt, so that a test sees whose answer it got.
  static wire::GenerateResultT generated(const wire::GenerateArgsT& args) {
    wire::GenerateResultT r;
    for (const auto& prompt : args.prompts) {
      auto s = std::make_unique<wire::SequenceT>();
      s->tokens = prompt->tokens;
      s->logprobs.assign(prompt->tokens.size(), -0.125F);
      s->finish = wire::FinishReason::Stop;
      r.sequences.push_back(std::move(s));
    }
    return r;
  }

  void cancel(Connection& c, std::uint64_t id, std::uint64_t target) {
    ++cancels_;
    for (auto it = c.held.begin(); it != c.held.end(); ++it)
      if (it->request_id == target) {
        c.held.erase(it);
        fail(c, target, Code::CANCELLED, "cancelled");
        break;
      }
    reply(c, id, wire::DoneT{});
  }

  std::string dir_;
  UniqueFd listener_;
  std::atomic<bool> running_ = false;
  std::atomic<bool> release_ = false;
  std::atomic<std::size_t> cancels_ = 0;
  std::atomic<std::size_t> hellos_ = 0;
  std::thread thread_;
  mutable std::mutex mutex_;
  Script script_;
  std::string token_;
  std::list<Connection> connections_;
  std::map<std::string, Model> models_;
  std::uint64_t last_model_ = 10;
  std::vector<std::uint64_t> executed_;
  std::vector<wire::SubmitOpT> submitted_;
  std::string file_contents_;
  wire::OpenJobT opened_;
};

}  // namespace plexrl::fakes
