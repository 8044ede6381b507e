// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/batch_decoder.h"

#include <omp.h>

#include <algorithm>
#include <cmath>

#include "engine_torch/op_checks.h"
#include "engine_torch/scratch.h"

namespace plexrl::model {
namespace {

constexpr std::size_t kChunk = TokenDecoder::kChunk;
constexpr std::size_t kLogitRows = 64;  // whose logits exist at a time

bool full(const ModelState& state) { return state.layout->mode == wire::TrainMode::Full; }

// What the rows' full weights are in.
const void* weights_of(const ModelState& state) {
  const ModelMemory& m = state.memory;
  const void* const in_float = full(state) ? m.sampler.data() : m.base.data();
  const void* const in_half = full(state) ? m.sampler16.data() : m.base16.data();
  return in_float != nullptr ? in_float : in_half;
}

// Prompt tokens of a step beside `rows` tokens of rows that decode: to the end of the chunk that
// these have begun, and a chunk more when that is less than half of one.
std::size_t prompt_share(std::size_t rows) {
  const std::size_t rest = kChunk - rows % kChunk;
  return rest < kChunk / 2 ? rest + kChunk : rest;
}

}  // namespace

BatchDecoder::BatchDecoder(const ModelState& state, std::uint64_t version)
    : weights_(weights_of(state)), device_(state.device), decoder_(make_decoder(state)) {
  if (full(state)) version_ = version;
}

bool BatchDecoder::fits(const ModelState& state, std::uint64_t version) const noexcept {
  const bool alike = full(state) ? version_ == version : !version_;
  return alike && weights_of(state) == weights_ && state.device.math == device_.math &&
         state.device.cuda == device_.cuda;
}

void BatchDecoder::join(GenerateRequest& request) {
  const ModelState& state = request.state();
  PLEXRL_CHECK(fits(state, request.version()), "a batch is of one base");
  decoder_->reach(request.positions());
  const auto same = std::find_if(members_.begin(), members_.end(), [&](const Member& member) {
    return &member.request->state() == &state && member.request->version() == request.version();
  });
  if (same != members_.end())
    members_.insert(same, {&request, same->adapter});
  else
    members_.push_back({&request, bind_version(*decoder_, state, request.version())});
}

void BatchDecoder::leave(const GenerateRequest& request) {
  std::erase_if(members_, [&](const Member& member) { return member.request == &request; });
}

Result<std::vector<BatchDecoder::Failure>> BatchDecoder::step() {
  failures_.clear();
  check_versions();
  const std::vector<Planned> tokens = plan();
  PLEXRL_TRY(decoder_->acquire());
  Status status;
  for (std::size_t at = 0; status.ok() && at < tokens.size(); at += kChunk)
    status = compute(std::span(tokens).subspan(at, std::min(kChunk, tokens.size() - at)));
  decoder_->release();
  PLEXRL_TRY(status);
  for (const Failure& failure : failures_) leave(*failure.request);
  return std::move(failures_);
}

void BatchDecoder::check_versions() {
  for (const Member& member : members_) {
    const Status status = check_version(member.request->state(), member.request->version());
    if (!status.ok())
      fail(*member.request, status.within("generate: replaced while it was parked"));
  }
}

void BatchDecoder::add(const Member& member, std::vector<PlannedToken>& tokens,
                       std::vector<Planned>& plan) {
  for (PlannedToken& token : tokens) {
    token.at.adapter = member.adapter.get();
    plan.push_back({member.request, token});
  }
  tokens.clear();
}

std::vector<BatchDecoder::Planned> BatchDecoder::plan() {
  std::vector<Planned> plan;
  std::vector<PlannedToken> tokens;
  std::size_t waiting = 0;  // requests with prompts
  for (const Member& member : members_) {
    if (failed(*member.request)) continue;
    member.request->plan_rows(tokens);
    add(member, tokens, plan);
    waiting += member.request->has_prompts() ? 1 : 0;
  }
  std::size_t left = prompt_share(plan.size());
  for (const Member& member : members_) {
    if (failed(*member.request) || !member.request->has_prompts()) continue;
    const std::size_t before = plan.size();
    member.request->plan_prompts((left + waiting - 1) / waiting, tokens);
    add(member, tokens, plan);
    left -= plan.size() - before;
    --waiting;
  }
  return plan;
}

Status BatchDecoder::compute(std::span<const Planned> chunk) {
  std::vector<TokenAt> tokens;
  for (const Planned& planned : chunk) tokens.push_back(planned.token.at);
  decoder_->forward(tokens);
  for (const Planned& planned : chunk) planned.request->computed(planned.token);
  return draw_all(chunk);
}

// Of the last forward, as many rows of logits at a time as there is room for.
Status BatchDecoder::draw_all(std::span<const Planned> chunk) {
  std::vector<std::int64_t> states;
  std::vector<Draw> draws;
  const auto rows = static_cast<std::size_t>(
      std::count_if(chunk.begin(), chunk.end(), [](const Planned& p) { return p.token.rows > 0; }));
  if (rows == 0) return {};
  PLEXRL_ASSIGN(const Scratch logits,
                Scratch::make(static_cast<std::int64_t>(std::min(rows, kLogitRows)) *
                              decoder_->config().vocab_size));
  const auto flush = [&] {
    decoder_->logits(states, logits.data());
    draw(logits.data(), draws);
    states.clear();
    draws.clear();
  };
  for (std::size_t i = 0; i < chunk.size(); ++i) {
    const Planned& planned = chunk[i];
    if (planned.token.rows == 0) continue;
    for (std::uint32_t r = 0; r < planned.token.rows; ++r)
      draws.push_back({planned.request,
                       planned.token.first_row + r,
                       static_cast<std::int64_t>(states.size()),
                       {}});
    states.push_back(static_cast<std::int64_t>(i));
    if (states.size() == kLogitRows) flush();
  }
  if (!states.empty()) flush();
  return {};
}

void BatchDecoder::draw(const float* logits, std::span<Draw> draws) {
  const std::int64_t vocab = decoder_->config().vocab_size;
  const auto count = static_cast<std::int64_t>(draws.size());
  sampling_.resize(static_cast<std::size_t>(omp_get_max_threads()));
#pragma omp parallel for schedule(static) if (count * vocab > 1 << 15)
  for (std::int64_t i = 0; i < count; ++i) {
    Draw& d = draws[static_cast<std::size_t>(i)];
    d.drawn = sample(logits + d.logits * vocab, vocab, d.request->rule(d.row),
                     d.request->number(d.row), d.request->next_position(d.row),
                     &sampling_[static_cast<std::size_t>(omp_get_thread_num())]);
  }
  for (const Draw& d : draws) {
    if (failed(*d.request)) continue;
    if (std::isfinite(d.drawn.logprob))
      d.request->accept(d.row, d.drawn);
    else
      fail(*d.request, error(Code::INVALID_ARGUMENT,
                             "generate: version %llu gives logits that are not finite: the model "
                             "has diverged, load an earlier checkpoint",
                             static_cast<unsigned long long>(d.request->version())));
  }
}

void BatchDecoder::fail(const GenerateRequest& request, Status error) {
  failures_.push_back({&request, std::move(error)});
}

bool BatchDecoder::failed(const GenerateRequest& request) const noexcept {
  return std::any_of(failures_.begin(), failures_.end(),
                     [&](const Failure& failure) { return failure.request == &request; });
}

}  // namespace plexrl::model
