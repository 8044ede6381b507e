// SPDX-License-Identifier: Apache-2.0
#include "sim/script_job.h"

#include <algorithm>

#include "sim/event_queue.h"

namespace plexrl::sim {
namespace {

int class_of(core::OpKind kind) {
  if (kind == core::OpKind::kGenerate || kind == core::OpKind::kLease) return 2;
  return kind == core::OpKind::kLogprobs ? 1 : 0;
}

// A device of the job's own: the host of the script when it is alone.
class OwnDevice final : public JobHost {
 public:
  explicit OwnDevice(Duration first_move) : first_move_(first_move) {}
  void submit(std::uint64_t, std::size_t, core::OpKind kind, Duration time, std::uint64_t,
              std::uint64_t token) override {
    waiting_[class_of(kind)].push({time, token});
  }
  void wait(std::uint64_t, Duration time, std::uint64_t token) override {
    SimEvent event;
    event.at = now_ + time;
    event.kind = SimEvent::Kind::kTimer;
    event.number = token;
    events_.add(event);
  }
  Duration run(SimJob& job) {
    job.start();
    for (begin(); !events_.empty(); begin()) {
      const SimEvent event = events_.take();
      now_ = event.at;
      if (event.kind == SimEvent::Kind::kTimer) {
        job.waited(event.number);
      } else {
        busy_ = false;
        job.op_finished(event.number);
      }
    }
    return {now_.ns};
  }

 private:
  void begin() {
    for (auto& queue : waiting_) {
      if (busy_ || queue.empty()) continue;
      SimEvent event;
      event.at = now_ + first_move_ + queue.front().first;
      event.kind = SimEvent::Kind::kOpEnds;
      event.number = queue.front().second;
      first_move_ = {};
      queue.pop();
      busy_ = true;
      events_.add(event);
    }
  }
  Duration first_move_;
  TimePoint now_{};
  bool busy_ = false;
  std::queue<std::pair<Duration, std::uint64_t>> waiting_[3];
  EventQueue events_;
};

}  // namespace

ScriptJob::ScriptJob(std::uint64_t number, std::vector<ScriptOp> ops, JobHost* host)
    : number_(number), ops_(std::move(ops)), followers_(ops_.size() + 1), host_(host) {
  for (std::uint32_t op = 1; op <= ops_.size(); ++op) followers_[ops_[op - 1].after].push_back(op);
}

void ScriptJob::begin_after(std::uint32_t number) {
  for (const std::uint32_t op : followers_[number]) host_->wait(number_, ops_[op - 1].think, op);
}

void ScriptJob::waited(std::uint64_t token) {
  const ScriptOp& op = ops_[token - 1];
  host_->submit(number_, 0, op.kind, op.time, op.kv_bytes, token);
}

void ScriptJob::op_finished(std::uint64_t token) {
  ++finished_;
  begin_after(static_cast<std::uint32_t>(token));
}

Duration script_alone_time(const std::vector<ScriptOp>& ops, Duration first_move) {
  OwnDevice device(first_move);
  ScriptJob job(1, ops, &device);
  return device.run(job);
}

}  // namespace plexrl::sim
