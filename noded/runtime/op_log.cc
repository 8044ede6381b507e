// SPDX-License-Identifier: Apache-2.0
#include "runtime/op_log.h"

#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "wire/message.h"

namespace plexrl::runtime {
namespace {

constexpr std::string_view kOps = "ops";
constexpr std::string_view kResults = "results";
constexpr std::string_view kLosses = "losses";
// Has one row of a model: gone_up_to, only_in_manifest and, while the client has to be told, code
// and text of the failure, with blanks in between.

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

bool leads_to_commit(const Op& op) {
  return op.kind == core::OpKind::kOptimStep || op.kind == core::OpKind::kLoad || op.publish();
}

Result<Op> op_of(const std::string& text) {
  PLEXRL_ASSIGN(auto message, decode(text));
  auto* submit = message.body.AsSubmitOp();
  if (submit == nullptr) return error(Code::CORRUPT, "logged op: not an op");
  Op op;
  op.id = OpId{message.request_id};
  op.seq = submit->seq;
  op.kind = static_cast<core::OpKind>(submit->args.type);
  op.args = std::move(submit->args);
  return op;
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
        // A damaged row is found out by who reads it.
        const auto op = op_of(std::string(value));
        index.ops[seq] = {value.size(), op && leads_to_commit(*op), op && op->publish()};
        index.op_bytes += value.size();
      }));
  PLEXRL_TRY(store_.scan(kLosses, [this](std::uint64_t key, std::uint64_t, std::string_view value) {
    decode_loss(std::string(value), models_[ModelId{key}]);
  }));
  return store_.scan(kResults,
                     [this](std::uint64_t key, std::uint64_t seq, std::string_view value) {
                       Index& index = models_[ModelId{key}];
                       index.results.insert(seq);
                       const auto message = decode(std::string(value));
                       if (message && message->body.AsFailure() == nullptr) index.last_good = seq;
                     });
}

Status OpLog::room(ModelId model, core::OpKind kind) const {
  if (store_.crowded())
    return error(Code::BUSY, "the disk of the node's store is behind; retry later");
  const auto found = models_.find(model);
  if (found == models_.end()) return {};
  const Index& index = found->second;
  if (index.refused)
    return error(Code::BUSY, "the node's store takes no rows (is its disk full?); retry later");
  if (index.ops.size() < kMaxLoggedOps && index.op_bytes < kMaxLoggedBytes) return {};
  const bool empties = kind == core::OpKind::kOptimStep || kind == core::OpKind::kLoad;
  if (empties && index.ops.size() < kMaxLoggedOps + kReservedOps) return {};
  return full(index);
}

Status OpLog::full(const Index& index) {
  const bool commit_comes = std::any_of(index.ops.begin(), index.ops.end(),
                                        [](const auto& entry) { return entry.second.commits; });
  if (commit_comes)
    return error(Code::BUSY, "%zu training ops wait for the model's next commit; retry later",
                 index.ops.size());
  return error(Code::NO_CAPACITY,
               "%zu training ops (%llu MiB) since the model's last optim_step, of at most %zu or "
               "%llu MiB: take an optim_step; larger and fewer forward_backwards fit more into one",
               index.ops.size(), static_cast<unsigned long long>(index.op_bytes >> 20),
               kMaxLoggedOps, static_cast<unsigned long long>(kMaxLoggedBytes >> 20));
}

void OpLog::append(const Op& op) {
  const auto bytes = wire::encode(op_message(op));
  Index& index = models_[op.model];
  // A number may come again: a client's file is not there after a restart, so it sends the op anew.
  Logged& logged = index.ops[op.seq];
  index.op_bytes += bytes.size() - logged.bytes;
  logged = {bytes.size(), leads_to_commit(op), op.publish()};
  store::Batch batch;
  batch.put(kOps, op.model.value, op.seq, text_of(bytes));
  add_row(op.model, std::move(batch));
}

bool OpLog::has_op(ModelId model, std::uint64_t seq) const {
  const auto found = models_.find(model);
  return found != models_.end() && found->second.ops.count(seq) != 0;
}

std::vector<std::uint64_t> OpLog::logged(ModelId model) const {
  std::vector<std::uint64_t> list;
  if (const auto found = models_.find(model); found != models_.end())
    for (const auto& [seq, op] : found->second.ops) list.push_back(seq);
  return list;
}

Result<Op> OpLog::read(ModelId model, std::uint64_t seq) const {
  PLEXRL_ASSIGN(const auto text, bytes_of(kOps, model, seq));
  PLEXRL_ASSIGN(Op op, op_of(text));
  op.model = model;
  op.seq = seq;
  return op;
}

void OpLog::erase_ops(ModelId model, Index& index, std::uint64_t seq, store::Batch& batch) {
  const auto last = index.ops.upper_bound(seq);
  if (last == index.ops.begin()) return;
  for (auto it = index.ops.begin(); it != last; it = index.ops.erase(it))
    index.op_bytes -= it->second.bytes;
  batch.erase(kOps, model.value, 0, seq);
}

void OpLog::committed(ModelId model, std::uint64_t seq) {
  store::Batch batch;
  erase_ops(model, models_[model], seq, batch);
  if (!batch.changes().empty()) add_row(model, std::move(batch));
}

std::uint64_t OpLog::last_published(ModelId model) const {
  const auto found = models_.find(model);
  if (found == models_.end()) return 0;
  const auto& ops = found->second.ops;
  for (auto op = ops.rbegin(); op != ops.rend(); ++op) {
    if (!op->second.publishes || !has_result(model, op->first)) continue;
    const auto outcome = result(model, op->first);
    if (outcome && outcome->status.ok()) return op->first;
  }
  return 0;
}

// ---- losses ----

void OpLog::decode_loss(const std::string& row, Index& index) {
  char* rest = nullptr;
  index.gone_up_to = std::strtoull(row.c_str(), &rest, 10);
  index.only_in_manifest = std::strtoull(rest, &rest, 10);
  if (*rest == '\0') return;
  wire::FailureT failure;
  failure.code = static_cast<int>(std::strtol(rest, &rest, 10));
  failure.text = *rest == '\0' ? rest : rest + 1;
  index.loss = wire::from_failure(failure);
}

void OpLog::put_loss(ModelId model, const Index& index, store::Batch& batch) {
  std::string row = std::to_string(index.gone_up_to) + " " + std::to_string(index.only_in_manifest);
  if (!index.loss.ok())
    row += " " + std::to_string(wire::to_failure(index.loss).code) + " " +
           std::string(index.loss.text());
  batch.put(kLosses, model.value, 0, row);
}

void OpLog::lost(ModelId model, const Status& why, store::Batch batch) {
  const std::uint64_t last = last_result(model);
  Index& index = models_[model];
  index.gone_up_to = std::max(index.gone_up_to, last);
  index.only_in_manifest = 0;
  index.loss = why;
  erase_ops(model, index, last, batch);
  put_loss(model, index, batch);
  add_row(model, std::move(batch));
}

std::uint64_t OpLog::gone_up_to(ModelId model) const {
  const auto found = models_.find(model);
  return found == models_.end() ? 0 : found->second.gone_up_to;
}

void OpLog::only_in_manifest(ModelId model, std::uint64_t seq) {
  Index& index = models_[model];
  index.only_in_manifest = std::max(index.only_in_manifest, seq);
  store::Batch batch;
  put_loss(model, index, batch);
  add_row(model, std::move(batch));
}

std::uint64_t OpLog::only_in_manifest(ModelId model) const {
  const auto found = models_.find(model);
  return found == models_.end() ? 0 : found->second.only_in_manifest;
}

Status OpLog::loss(ModelId model) const {
  const auto found = models_.find(model);
  return found == models_.end() ? Status() : found->second.loss;
}

void OpLog::loss_told(ModelId model, const Status& told) {
  const auto found = models_.find(model);
  if (found == models_.end() || found->second.loss.ok()) return;
  if (found->second.loss.text() != told.text()) return;
  found->second.loss = {};
  store::Batch batch;
  put_loss(model, found->second, batch);
  add_row(model, std::move(batch));
}

// ---- results ----

void OpLog::put_result(ModelId model, std::uint64_t seq, const OpOutcome& outcome, Kept kept) {
  const auto message = outcome.status.ok() ? wire::message(seq, outcome.reply)
                                           : wire::message(seq, wire::to_failure(outcome.status));
  const auto bytes = wire::encode(message);
  Index& index = models_[model];
  index.results.insert(seq);
  if (outcome.status.ok()) index.last_good = std::max(index.last_good, seq);
  store::Batch batch;
  batch.put(kResults, model.value, seq, text_of(bytes));
  trim_results(model, index, batch);
  add_row(model, std::move(batch), std::move(kept));
}

// Older ones than the newest kKeptResults, except last_good and those of logged ops: a replay has
// to know which of them had failed.
void OpLog::trim_results(ModelId model, Index& index, store::Batch& batch) {
  const std::uint64_t newest = *index.results.rbegin();
  if (newest < index.trim_at) return;
  index.trim_at = newest + kKeptResults;
  const auto end = index.results.upper_bound(newest - kKeptResults);
  const auto stays = [&](std::uint64_t seq) {
    return seq == index.last_good || index.ops.count(seq) != 0;
  };
  for (auto first = index.results.begin(); first != end;) {
    if (stays(*first)) {
      ++first;
      continue;
    }
    const auto next = std::find_if(first, end, stays);
    batch.erase(kResults, model.value, *first, *std::prev(next));
    first = index.results.erase(first, next);
  }
}

// ---- the way to the store ----

void OpLog::add_row(ModelId model, store::Batch batch, Kept kept) {
  Index& index = models_[model];
  index.rows.push_back({++last_ticket_, std::make_shared<const store::Batch>(std::move(batch)),
                        false, std::move(kept)});
  if (!index.refused) offer(model, index.rows.back());
}

void OpLog::when_kept(ModelId model, Kept kept) {
  const auto found = models_.find(model);
  if (found == models_.end() || found->second.rows.empty()) return kept();
  Kept& last = found->second.rows.back().kept;
  last = [first = std::move(last), then = std::move(kept)] {
    if (first) first();
    then();
  };
}

void OpLog::offer(ModelId model, Row& row) {
  row.under_way = true;
  store_.write(row.batch, [this, model, ticket = row.ticket](const Status& status) {
    answered(model, ticket, status);
  });
}

// Answers come in order, and behind a failure only failures: an ok is for the first row.
void OpLog::answered(ModelId model, std::uint64_t ticket, const Status& status) {
  const auto found = models_.find(model);
  if (found == models_.end()) return;
  Index& index = found->second;
  const auto row = std::find_if(index.rows.begin(), index.rows.end(),
                                [&](const Row& one) { return one.ticket == ticket; });
  if (row == index.rows.end()) return;
  row->under_way = false;
  if (!status.ok()) return refused(index, status);
  PLEXRL_CHECK(row == index.rows.begin(), "rows of a model reach the store in order");
  const Kept kept = std::move(row->kept);
  index.rows.pop_front();
  if (index.refused) taken(model, index);
  if (kept) kept();
}

void OpLog::refused(Index& index, const Status& why) {
  index.refused = true;
  if (trouble_.empty())
    PLEXRL_LOG(kError, "keep training ops and results: %s; results wait until it works",
               why.to_string().c_str());
  trouble_ = why.text();
}

void OpLog::offer_all(ModelId model, Index& index) {
  for (Row& row : index.rows)
    if (!row.under_way) offer(model, row);
}

// The first row was the trial.
void OpLog::taken(ModelId model, Index& index) {
  index.refused = false;
  offer_all(model, index);
  trouble_may_be_over();
}

void OpLog::trouble_may_be_over() {
  const bool others = std::any_of(models_.begin(), models_.end(),
                                  [](const auto& entry) { return entry.second.refused; });
  if (others || trouble_.empty()) return;
  trouble_.clear();
  PLEXRL_LOG(kInfo, "training ops and results are stored again");
}

void OpLog::retry() {
  for (auto& [model, index] : models_)
    if (index.refused && !index.rows.front().under_way) offer(model, index.rows.front());
}

void OpLog::push(ModelId model) {
  const auto found = models_.find(model);
  if (found != models_.end()) offer_all(model, found->second);
}

Result<std::string> OpLog::bytes_of(std::string_view table, ModelId model,
                                    std::uint64_t seq) const {
  if (const auto found = models_.find(model); found != models_.end()) {
    const auto& rows = found->second.rows;
    for (auto row = rows.rbegin(); row != rows.rend(); ++row)
      for (const auto& change : row->batch->changes()) {
        if (change.table != table || seq < change.subkey || seq > change.last) continue;
        if (!change.erase) return change.value;
        return error(Code::NOT_FOUND, "training op %llu was committed",
                     static_cast<unsigned long long>(seq));
      }
  }
  return store_.get(table, model.value, seq);
}

// ---- what is kept ----

Result<OpOutcome> OpLog::result(ModelId model, std::uint64_t seq) const {
  PLEXRL_ASSIGN(const auto text, bytes_of(kResults, model, seq));
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

std::uint64_t OpLog::last_known(ModelId model) const {
  const auto found = models_.find(model);
  if (found == models_.end() || found->second.ops.empty()) return last_result(model);
  return std::max(last_result(model), found->second.ops.rbegin()->first);
}

void OpLog::forget(ModelId model) {
  auto gone = models_.extract(model);
  store::Batch batch;
  batch.erase(kOps, model.value, 0, UINT64_MAX);
  batch.erase(kResults, model.value, 0, UINT64_MAX);
  batch.erase(kLosses, model.value, 0, UINT64_MAX);
  store_.write(std::make_shared<const store::Batch>(std::move(batch)), [](const Status& status) {
    if (!status.ok()) PLEXRL_LOG(kError, "forget a model's log: %s", status.to_string().c_str());
  });
  if (gone.empty()) return;
  trouble_may_be_over();
  for (const Row& row : gone.mapped().rows)
    if (row.kept) row.kept();
}

}  // namespace plexrl::runtime
