// SPDX-License-Identifier: Apache-2.0
#include "runtime/sampling_groups.h"

#include <algorithm>
#include <utility>

namespace plexrl::runtime {
namespace {

bool alike(const wire::GenerateArgsT& a, const wire::GenerateArgsT& b) {
  return a.version == b.version && a.samples_per_prompt == b.samples_per_prompt &&
         a.max_new_tokens == b.max_new_tokens && a.temperature == b.temperature &&
         a.top_p == b.top_p && a.stop_tokens == b.stop_tokens;
}

SharedPart part_of(const Op& op) {
  const wire::GenerateArgsT& args = *op.args.AsGenerateArgs();
  SharedPart part{op.id, args.prompts.size(), args.samples_per_prompt, 0};
  for (const auto& prompt : args.prompts) part.prompt_tokens += prompt->tokens.size();
  return part;
}

void add(const Op& op, wire::GenerateArgsT& to, std::vector<SharedPart>& parts) {
  const wire::GenerateArgsT& args = *op.args.AsGenerateArgs();
  for (const auto& prompt : args.prompts)
    to.prompts.push_back(std::make_unique<wire::PromptT>(*prompt));
  auto group = std::make_unique<wire::GenerateGroupT>();
  group->prompts = static_cast<std::uint32_t>(args.prompts.size());
  group->seed = args.seed;
  to.groups.push_back(std::move(group));
  parts.push_back(part_of(op));
}

void by_itself(Op& op) {
  op.leader = {};
  op.riders.clear();
  op.shared.clear();
  op.kv_bytes = op.own.kv_bytes;
  op.work_tokens = op.own.work_tokens;
  op.rows = op.own.rows;
}

}  // namespace

OpId SamplingGroups::arrived(Op& op) {
  if (op.deaths > 0 || op.alone) return op.id;
  if (op.leader) return {};
  Queue& queue = queues_[op.model];
  if (queue.leading == op.id) return op.id;
  if (std::find(queue.waiting.begin(), queue.waiting.end(), op.id) == queue.waiting.end())
    queue.waiting.push_back(op.id);
  return next(op.model);
}

void SamplingGroups::dissolve(Op& leader) {
  for (const OpId id : std::exchange(leader.riders, {}))
    if (Op* const rider = ops_.find(id)) rider->leader = {};
}

std::vector<OpId> SamplingGroups::left(const Op& op) {
  for (const OpId id : op.riders)
    if (Op* const rider = ops_.find(id)) rider->leader = {};
  if (Op* const leader = ops_.find(op.leader)) std::erase(leader->riders, op.id);
  const auto found = queues_.find(op.model);
  if (found != queues_.end()) {
    std::erase(found->second.waiting, op.id);
    if (found->second.leading == op.id) found->second.leading = {};
  }
  return op.riders;
}

OpId SamplingGroups::next(ModelId model) {
  const auto found = queues_.find(model);
  if (found == queues_.end() || found->second.leading) return {};
  Queue& queue = found->second;
  while (!queue.waiting.empty()) {
    Op* const leader = ops_.find(queue.waiting.front());
    queue.waiting.pop_front();
    if (leader == nullptr) continue;
    queue.leading = leader->id;
    gather(*leader, queue.waiting);
    return leader->id;
  }
  queues_.erase(found);
  return {};
}

void SamplingGroups::gather(Op& leader, std::deque<OpId>& waiting) {
  const wire::GenerateArgsT& args = *leader.args.AsGenerateArgs();
  std::erase_if(waiting, [&](OpId id) {
    Op* const op = ops_.find(id);
    if (op == nullptr) return true;
    const bool fits =
        leader.rows + op->rows <= kMaxRows && leader.work_tokens + op->work_tokens <= kMaxTokens &&
        alike(args, *op->args.AsGenerateArgs()) && fits_(leader, leader.kv_bytes + op->kv_bytes);
    if (!fits) return false;
    op->leader = leader.id;
    leader.riders.push_back(id);
    leader.kv_bytes += op->kv_bytes;
    leader.work_tokens += op->work_tokens;
    leader.rows += op->rows;
    return true;
  });
}

void SamplingGroups::forget(ModelId model) {
  for (Op* const op : ops_.of_model(model))
    if (op->kind == core::OpKind::kGenerate) by_itself(*op);
  queues_.erase(model);
}

wire::GenerateArgsT shared_args(Op& leader, OpTable& ops) {
  wire::GenerateArgsT args = *leader.args.AsGenerateArgs();
  args.prompts.clear();
  leader.shared.clear();
  add(leader, args, leader.shared);
  for (const OpId id : leader.riders)
    if (const Op* const rider = ops.find(id)) add(*rider, args, leader.shared);
  return args;
}

Result<std::vector<SharedResult>> split_result(const Op& leader, wire::GenerateResultT result) {
  std::size_t rows = 0;
  for (const SharedPart& part : leader.shared) rows += part.prompts * part.samples;
  if (rows != result.sequences.size())
    return error(Code::INTERNAL, "the engine answered %zu of %zu rows", result.sequences.size(),
                 rows);
  std::vector<SharedResult> parts;
  auto at = result.sequences.begin();
  for (const SharedPart& part : leader.shared) {
    SharedResult& one = parts.emplace_back();
    one.op = part.op;
    one.rows = part.prompts * part.samples;
    one.value.version = result.version;
    // A prompt is computed once; the first token of each row comes from its end.
    one.tokens = part.prompt_tokens;
    for (std::uint64_t row = 0; row < one.rows; ++row, ++at) {
      one.tokens += std::max<std::size_t>((*at)->tokens.size(), 1) - 1;
      one.value.sequences.push_back(std::move(*at));
    }
  }
  return parts;
}

}  // namespace plexrl::runtime
