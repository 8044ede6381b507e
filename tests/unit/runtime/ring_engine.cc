// SPDX-License-Identifier: Apache-2.0
#include "ring_engine.h"

#include <fcntl.h>

namespace plexrl::runtime {
namespace {

// Small enough that an engine that hangs is not much of the run, large enough that ops meet.
constexpr Duration kLongestOp{25 * kMillisecond.ns};

std::vector<std::uint32_t> host_chunks(
    const std::vector<std::unique_ptr<wire::SegmentPlaceT>>& segments) {
  std::vector<std::uint32_t> chunks;
  for (const auto& place : segments)
    chunks.insert(chunks.end(), place->host.begin(), place->host.end());
  return chunks;
}

Result<engine::FakePool> open_pool(int fd, std::uint64_t chunk_bytes, std::uint32_t chunks) {
  return engine::FakePool::open(UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)), chunk_bytes, chunks);
}

}  // namespace

void RingEngine::call(wire::EngineBodyUnion request, const std::vector<int>& fds,
                      engine::ReplyHandler done) {
  const std::uint64_t call = ++last_call_;
  outstanding_.emplace(call, std::move(done));
  parts_.world.note("call", id_.value, static_cast<std::uint64_t>(request.type), call);
  if (fake_->pid() == 0) return answer(call, error(Code::ENGINE_DOWN, "the engine has ended"));
  if (hanging_) return;
  if (stops_here(request, call)) return;
  const bool op = request.AsEngineRunOp() != nullptr;
  const bool dies = (op && parts_.script.happens(&Faults::die_after_op)) ||
                    (moves(request) && parts_.script.happens(&Faults::die_after_move));
  watch(request, fds, call);
  const std::uint64_t before = fake_->ops_started();
  const auto shared = std::make_shared<const wire::EngineBodyUnion>(request);
  fake_->call(std::move(request), fds,
              [self = weak_from_this(), epoch = epoch_, call, shared, dies](Answer result) {
                const auto engine = self.lock();
                if (!engine || engine->epoch_ != epoch) return;
                engine->done_in_engine(*shared, call, std::move(result), dies);
              });
  if (op && fake_->ops_started() != before)
    parts_.ledger.op_starts(id_, shared->AsEngineRunOp()->op,
                            shared->AsEngineRunOp()->args.AsGenerateArgs() != nullptr);
}

bool RingEngine::stops_here(const Body& request, std::uint64_t call) {
  if (parts_.script.happens(&Faults::hang)) {
    hanging_ = true;
    return true;
  }
  if (request.AsEngineRunOp() != nullptr) return op_fault(call);
  return moves(request) && move_fault(request, call);
}

bool RingEngine::op_fault(std::uint64_t) {
  if (parts_.script.happens(&Faults::die_before_op)) {
    die();
    return true;
  }
  auto& options = fake_->options();
  options.op_time =
      parts_.world.random.one_in(3) ? Duration{} : parts_.world.random.up_to(kLongestOp);
  options.die_in_op = parts_.script.happens(&Faults::die_in_op) ? fake_->ops_started() + 1 : 0;
  options.never_yield = parts_.script.happens(&Faults::never_yield);
  if (options.never_yield) options.op_time = kSecond * 20;
  return false;
}

bool RingEngine::move_fault(const Body& request, std::uint64_t call) {
  if (parts_.script.happens(&Faults::die_before_move)) {
    die();
    return true;
  }
  const auto* suspend = request.AsEngineSuspend();
  const auto* commit = request.AsEngineCommit();
  if ((suspend != nullptr || commit != nullptr) && parts_.script.happens(&Faults::torn_copy)) {
    const auto targets = host_chunks(suspend != nullptr ? suspend->segments : commit->segments);
    check_targets(suspend != nullptr ? suspend->segments : commit->segments);
    fill(*host_, targets);
    die();
    return true;
  }
  if (!parts_.script.happens(&Faults::fail_move)) return false;
  answer(call, suspend != nullptr ? error(Code::IO, "a suspend that fails")
                                  : error(Code::NO_CAPACITY, "a move that fails"));
  return true;
}

// What the request says about memory, before the engine touches it.
void RingEngine::watch(const Body& request, const std::vector<int>& fds, std::uint64_t call) {
  DeviceLedger& ledger = parts_.ledger;
  if (const auto* attach = request.AsEngineAttachPools(); attach != nullptr && fds.size() == 2) {
    device_.reset();
    host_.reset();
    device_.emplace(open_pool(fds[0], attach->chunk_bytes, attach->device_chunks).value());
    host_.emplace(open_pool(fds[1], attach->chunk_bytes, attach->host_chunks).value());
  }
  if (const auto* resume = request.AsEngineResume())
    for (const auto& place : resume->segments)
      ledger.map(id_, resume->model, place->device, place->kind == wire::SegmentKind::Kv);
  if (const auto* op = request.AsEngineRunOp()) {
    models_[op->op] = op->model;
    if (op->kv) ledger.map(id_, op->model, op->kv->device, true);
  }
  // It may take its time to unmap them.
  if (const auto* drop = request.AsEngineDropOp())
    dropping_[call] = ledger.kv_of(id_, drop->op == 0 ? 0 : models_[drop->op]);
  if (const auto* suspend = request.AsEngineSuspend()) check_targets(suspend->segments);
  if (const auto* commit = request.AsEngineCommit()) check_targets(commit->segments);
}

void RingEngine::check_targets(const std::vector<std::unique_ptr<wire::SegmentPlaceT>>& segments) {
  const auto targets = host_chunks(segments);
  if (parts_.committed(targets))
    parts_.broken.add("engine %" PRIu64 " copies over a committed state", id_.value);
}

void RingEngine::done_in_engine(const Body& request, std::uint64_t call, Answer result, bool dies) {
  if (!result && result.error().code() == Code::ENGINE_DOWN) return;  // by on_engine_down
  DeviceLedger& ledger = parts_.ledger;
  const bool moved = result && result->body.AsEngineMoved() != nullptr;
  const bool yielded = result && result->body.AsEngineYielded() != nullptr;
  if (const auto* op = request.AsEngineRunOp()) {
    ledger.op_ends(id_, op->op);
    if (!yielded) ledger.unmap(id_, op->model, true);
  }
  if (const auto* resume = request.AsEngineResume(); resume != nullptr && !moved)
    ledger.unmap(id_, resume->model, false);
  if (const auto* suspend = request.AsEngineSuspend(); suspend != nullptr && moved)
    ledger.unmap(id_, suspend->model, false);
  if (const auto* forget = request.AsEngineForget()) ledger.unmap(id_, forget->model, false);
  if (request.AsEngineDropOp() != nullptr) ledger.unmap(id_, dropping_[call]);
  if (!dies) return answer(call, std::move(result));
  die();  // the call fails with the others
}

}  // namespace plexrl::runtime
