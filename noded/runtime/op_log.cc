// SPDX-License-Identifier: Apache-2.0
#include "runtime/op_log.h"

#include <algorithm>

#include "store/state_store.h"
#include "wire/message.h"

namespace plexrl::runtime {
namespace {

constexpr std::string_view kOps = "ops";
constexpr std::string_view kResults = "results";

std::string_view text_of(const flatbuffers::DetachedBuffer& buffer) {
  return {reinterpret_cast<const char*>(buffer.data()), buffer.size()};
}

// FlatBuffers wants aligned bytes, which a string of the store need not be.
Result<wire::MessageT> decode(const std::string& text) {
  const std::vector<std::uint8_t> bytes(text.begin(), text.end());
  auto message = wire::decode_message(bytes);
  if (!message) return error(Code::CORRUPT, "%s", message.error().text().c_str());
  return message;
}

wire::MessageT op_message(const Op& op) {
  wire::SubmitOpT submit;
  submit.model = op.model.value;
  submit.seq = op.seq;
  submit.args = op.args;
  return wire::message(op.id.value, std::move(submit));
}

}  // namespace

Status OpLog::load() {
  PLEXRL_TRY(
      store_.scan(kOps, [this](std::uint64_t key, std::uint64_t seq, std::string_view value) {
        Index& index = models_[ModelId{key}];
        index.ops[seq] = value.size();
        index.op_bytes += value.size();
      }));
  return store_.scan(kResults, [this](std::uint64_t key, std::uint64_t seq, std::string_view) {
    models_[ModelId{key}].results.insert(seq);
  });
}

Status OpLog::room(ModelId model, core::OpKind kind) const {
  const auto found = models_.find(model);
  if (found == models_.end()) return {};
  const Index& index = found->second;
  if (!index.unstored.empty())
    return error(Code::BUSY, "the node's store takes no results (is its disk full?); retry later");
  if (index.ops.size() < kMaxLoggedOps && index.op_bytes < kMaxLoggedBytes) return {};
  const bool leads_to_commit = kind == core::OpKind::kOptimStep || kind == core::OpKind::kLoad;
  if (leads_to_commit && index.ops.size() < kMaxLoggedOps + kReservedOps) return {};
  return error(Code::BUSY, "%zu training ops wait for the model's next commit; retry later",
               index.ops.size());
}

Status OpLog::append(const Op& op) {
  const auto bytes = wire::encode(op_message(op));
  PLEXRL_TRY(store_.put(kOps, op.model.value, op.seq, text_of(bytes)).within("log the op"));
  Index& index = models_[op.model];
  // A number may come again: a client's file is not there after a restart, so it sends the op anew.
  std::size_t& logged = index.ops[op.seq];
  index.op_bytes += bytes.size() - logged;
  logged = bytes.size();
  return {};
}

std::vector<std::uint64_t> OpLog::logged(ModelId model) const {
  std::vector<std::uint64_t> list;
  if (const auto found = models_.find(model); found != models_.end())
    for (const auto& [seq, bytes] : found->second.ops) list.push_back(seq);
  return list;
}

Result<Op> OpLog::read(ModelId model, std::uint64_t seq) const {
  PLEXRL_ASSIGN(const auto text, store_.get(kOps, model.value, seq));
  PLEXRL_ASSIGN(auto message, decode(text));
  auto* submit = message.body.AsSubmitOp();
  if (submit == nullptr) return error(Code::CORRUPT, "logged op: not an op");
  Op op;
  op.id = OpId{message.request_id};
  op.model = model;
  op.seq = seq;
  op.kind = static_cast<core::OpKind>(submit->args.type);
  op.args = std::move(submit->args);
  op.logged = true;
  return op;
}

Status OpLog::committed(ModelId model, std::uint64_t seq) {
  Index& index = models_[model];
  const auto last = index.ops.upper_bound(seq);
  if (last == index.ops.begin()) return {};
  PLEXRL_TRY(store_.erase(kOps, model.value, seq));
  for (auto it = index.ops.begin(); it != last; it = index.ops.erase(it))
    index.op_bytes -= it->second;
  return {};
}

Status OpLog::put_result(ModelId model, std::uint64_t seq, const OpOutcome& outcome) {
  const auto message = outcome.status.ok() ? wire::message(seq, outcome.reply)
                                           : wire::message(seq, wire::to_failure(outcome.status));
  const auto bytes = wire::encode(message);
  Index& index = models_[model];
  index.results.insert(seq);
  Status status = store_.put(kResults, model.value, seq, text_of(bytes)).within("keep the result");
  if (!status.ok()) {
    index.unstored.emplace(seq, text_of(bytes));
    return status;
  }
  // The result is kept; that an older one is kept for longer harms nobody.
  (void)trim_results(model, index);
  return {};
}

Status OpLog::store_results() {
  for (auto& [model, index] : models_) {
    while (!index.unstored.empty()) {
      const auto& [seq, bytes] = *index.unstored.begin();
      PLEXRL_TRY(store_.put(kResults, model.value, seq, bytes).within("keep the result"));
      index.unstored.erase(index.unstored.begin());
    }
  }
  return {};
}

bool OpLog::stored(ModelId model, std::uint64_t seq) const {
  const auto found = models_.find(model);
  return found == models_.end() || found->second.unstored.count(seq) == 0;
}

Status OpLog::trim_results(ModelId model, Index& index) {
  // Erased in batches: one erase for many results instead of one for each.
  if (index.results.size() <= 2 * kKeptResults) return {};
  const std::uint64_t newest = *index.results.rbegin();
  std::uint64_t limit = newest - kKeptResults;
  // A replay has to know which of the logged ops had failed.
  if (!index.ops.empty()) limit = std::min(limit, index.ops.begin()->first - 1);
  PLEXRL_TRY(store_.erase(kResults, model.value, limit));
  index.results.erase(index.results.begin(), index.results.upper_bound(limit));
  return {};
}

Result<std::string> OpLog::result_bytes(ModelId model, std::uint64_t seq) const {
  if (const auto found = models_.find(model); found != models_.end()) {
    const auto kept = found->second.unstored.find(seq);
    if (kept != found->second.unstored.end()) return kept->second;
  }
  return store_.get(kResults, model.value, seq);
}

Result<OpOutcome> OpLog::result(ModelId model, std::uint64_t seq) const {
  PLEXRL_ASSIGN(const auto text, result_bytes(model, seq));
  PLEXRL_ASSIGN(auto message, decode(text));
  OpOutcome outcome;
  if (const auto* failure = message.body.AsFailure()) {
    outcome.status = wire::from_failure(*failure);
  } else if (auto* reply = message.body.AsOpReply()) {
    outcome.reply = std::move(*reply);
  } else {
    return error(Code::CORRUPT, "stored result: neither value nor failure");
  }
  return outcome;
}

bool OpLog::has_result(ModelId model, std::uint64_t seq) const {
  const auto found = models_.find(model);
  return found != models_.end() && found->second.results.count(seq) != 0;
}

std::uint64_t OpLog::last_result(ModelId model) const {
  const auto found = models_.find(model);
  if (found == models_.end() || found->second.results.empty()) return 0;
  return *found->second.results.rbegin();
}

Status OpLog::forget(ModelId model) {
  models_.erase(model);
  PLEXRL_TRY(store_.erase(kOps, model.value, UINT64_MAX));
  return store_.erase(kResults, model.value, UINT64_MAX);
}

}  // namespace plexrl::runtime
