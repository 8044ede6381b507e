// SPDX-License-Identifier: Apache-2.0
#include "ring_client.h"

#include "slurm/grant.h"

namespace plexrl::runtime {
namespace {

constexpr std::size_t kPipeline = 4;
constexpr Duration kThink{40 * kMillisecond.ns};
constexpr Duration kPause{5 * kSecond.ns};
constexpr Duration kRetry{100 * kMillisecond.ns};
constexpr std::size_t kRemembered = 16;

template <class Args>
wire::OpArgsUnion union_of(Args args) {
  wire::OpArgsUnion value;
  value.Set(std::move(args));
  return value;
}

wire::OpArgsUnion forward_backward(Random& random, bool forward_only) {
  auto datum = std::make_unique<wire::DatumT>();
  datum->tokens = {static_cast<int>(random.below(8)), 1, 2};
  datum->target_tokens = {1, static_cast<int>(random.below(8)), 3};
  datum->weights = {1.0F, 1.0F, 1.0F};
  wire::ForwardBackwardArgsT args;
  args.data.push_back(std::move(datum));
  args.forward_only = forward_only;
  return union_of(std::move(args));
}

wire::OpArgsUnion optim_step(Random& random) {
  wire::OptimStepArgsT args;
  args.learning_rate = 0.001 * static_cast<double>(random.between(1, 9));
  return union_of(args);
}

wire::OpArgsUnion save(const std::string& name) {
  wire::SaveArgsT args;
  args.target = name.empty() ? wire::SaveTarget::Sampler : wire::SaveTarget::Store;
  args.name = name;
  return union_of(std::move(args));
}

wire::OpArgsUnion load(const std::string& name) {
  wire::LoadArgsT args;
  args.target = wire::SaveTarget::Store;
  args.name = name;
  return union_of(std::move(args));
}

wire::OpArgsUnion generate(Random& random, std::uint64_t version) {
  auto prompt = std::make_unique<wire::PromptT>();
  prompt->tokens = {1, 2};
  wire::GenerateArgsT args;
  args.version = version;
  args.prompts.push_back(std::move(prompt));
  args.max_new_tokens = 4;
  args.seed = random.below(1000);
  return union_of(std::move(args));
}

wire::OpArgsUnion logprobs(Random& random, std::uint64_t version) {
  auto sequence = std::make_unique<wire::PromptT>();
  sequence->tokens = {1, static_cast<int>(random.below(8)), 3};
  wire::LogprobsArgsT args;
  args.version = version;
  args.sequences.push_back(std::move(sequence));
  return union_of(std::move(args));
}

bool publishes(const wire::OpArgsUnion& args) {
  const auto* save = args.AsSaveArgs();
  return save != nullptr && save->target == wire::SaveTarget::Sampler;
}

bool has(const Status& status, const char* text) {
  return std::string(status.text()).find(text) != std::string::npos;
}

}  // namespace

std::optional<std::uint64_t> step_after_loss(const Status& status) {
  if (status.code() != Code::LOST && status.code() != Code::CORRUPT) return std::nullopt;
  const std::string text(status.text());
  if (text.find("starts from its base again") != std::string::npos) return 0;
  const std::string mark = "after step ";
  const auto at = text.find(mark);
  if (at == std::string::npos) return std::nullopt;
  return std::strtoull(text.c_str() + at + mark.size(), nullptr, 10);
}

RingClient::RingClient(const Parts& parts, std::uint32_t job, std::uint64_t ops)
    : parts_(parts), job_(job), left_(ops) {
  Random& random = parts.world.random;
  const auto mode = random.one_in(2) ? wire::TrainMode::Lora : wire::TrainMode::Full;
  // A disk tier forbids models that are committed only when they are parked.
  const bool two = !parts.script.with_disk && random.one_in(4);
  for (int i = 0; i < (two ? 2 : 1); ++i) {
    auto model = std::make_unique<RingModel>();
    model->name = "m" + std::to_string(i);
    model->mode = mode;
    model->seed = random.below(1000);
    model->reference = std::make_unique<Reference>(mode, model->seed, parts.node.fake_options());
    models_.push_back(std::move(model));
  }
}

// ---- coming and going ----

void RingClient::act() {
  Random& random = parts_.world.random;
  const Duration pause = random.one_in(40) ? random.up_to(kPause) : random.up_to(kThink);
  parts_.world.after(pause, [this] { act(); });
  if (!parts_.node.ready() || closed_ || parts_.world.now() < away_until_) return;
  if (!open_) return open();
  if (!session_) {
    session_ = SessionId{++parts_.sessions};
    return;
  }
  if (!prepared()) return;
  send_due();
  if (std::exchange(restarted_, false) && !finishing_) return after_restart();
  if (!finishing_ && left_ > 0) work();
}

bool RingClient::prepared() {
  for (const auto& model : models_)
    if (model->id == 0) create(*model);
  return std::all_of(models_.begin(), models_.end(), [](const auto& m) { return m->id != 0; });
}

void RingClient::open() {
  if (opening_) return;
  opening_ = true;
  slurm::Grant grant;
  grant.pool = "rl";
  grant.share_percent = 50;
  grant.host_memory_mib = 1;
  grant.train_mode = models_.front()->mode == wire::TrainMode::Lora ? "lora" : "full";
  grant.lora_rank = models_.front()->mode == wire::TrainMode::Lora ? 8 : 0;
  grant.models = {"tiny"};
  wire::OpenJobT request;
  request.job_id = job_;
  request.uid = 1000 + job_;
  request.grant = slurm::format_grant(grant);
  parts_.node.runtime().tenant_service().open(
      request, [this, connection = connection_](const Status& status) {
        if (connection != connection_) return;
        opening_ = false;
        if (status.ok()) {
          tenant_ = parts_.node.runtime().tenants().find_job(job_)->id;
          open_ = true;
        } else if (status.code() != Code::IO) {
          parts_.broken.add("job %u cannot be opened: %s", job_, status.to_string().c_str());
        }
      });
}

void RingClient::create(RingModel& model) {
  if (std::exchange(model.creating, true)) return;
  wire::CreateModelT request;
  request.name = model.name;
  request.mode = model.mode;
  request.seed = model.seed;
  parts_.node.runtime().model_service().create(
      tenant_, request, [this, &model, connection = connection_](Result<wire::ModelInfoT> info) {
        if (connection != connection_) return;
        model.creating = false;
        if (info) {
          model.id = info->model;
          model.engine = parts_.node.runtime().models().find(ModelId{model.id})->engine;
        } else if (info.error().code() != Code::IO && info.error().code() != Code::ENGINE_DOWN) {
          complain(model, 0, "cannot be created", info.error());
        }
      });
}

// Requests that nobody can be told of any more.
void RingClient::disconnected() {
  ++connection_;
  restarted_ = true;
  session_ = {};
  opening_ = false;
  pending_.clear();
  for (const auto& model : models_) {
    model->creating = false;
    for (auto& [seq, op] : model->ops) op.request = 0;
  }
}

void RingClient::vanish() {
  const SessionId session = session_;
  disconnected();
  parts_.node.runtime().op_service().session_closed(session);
  away_until_ = parts_.world.now() + parts_.world.random.up_to(kSecond * 2);
}

// The epilog and, soon after, the next prolog; the state is kept meanwhile.
void RingClient::requeue() {
  ++closes_;
  if (!parts_.node.runtime().tenant_service().close(job_).ok()) return;
  if (session_) vanish();
  open_ = false;
  for (const auto& model : models_) model->id = 0;
}

void RingClient::close() {
  ++closes_;
  if (!parts_.node.runtime().tenant_service().close(job_).ok()) return;
  if (session_) vanish();
  closed_ = true;
}

bool RingClient::idle() const {
  if (!pending_.empty() || opening_) return false;
  return std::all_of(models_.begin(), models_.end(),
                     [](const auto& model) { return model->ops.empty() && !model->creating; });
}

std::string RingClient::waits_for() const {
  std::string text = "job " + std::to_string(job_) + (open_ ? "" : " is not open") + ":";
  for (const auto& model : models_) {
    text += " " + model->name + (model->id == 0 ? " is not there" : "");
    for (const auto& [seq, op] : model->ops)
      text += " " + std::to_string(seq) +
              (op.answer         ? "(told)"
               : op.request == 0 ? "(unsent)"
                                 : "");
  }
  for (const auto& [request, pending] : pending_)
    if (pending.seq == 0) text += " a sampling op";
  return text;
}

// ---- asking ----

void RingClient::work() {
  Random& random = parts_.world.random;
  RingModel& model = *models_[random.below(models_.size())];
  if (random.one_in(60)) return vanish();
  if (random.one_in(200)) return requeue();
  if (random.one_in(30)) cancel_some();
  if (random.one_in(25)) repeat(model);
  if (random.one_in(3)) {
    sample(model);
  } else if (model.ops.size() < kPipeline) {
    new_op(model);
  }
  --left_;
}

void RingClient::new_op(RingModel& model) {
  RingModel::Op op;
  plan(model, op);
  model.ops.emplace(model.next_seq++, std::move(op));
  // Now and then the next number goes first.
  if (!parts_.world.random.one_in(12)) send_due();
}

void RingClient::plan(RingModel& model, RingModel::Op& op) {
  Random& random = parts_.world.random;
  const std::uint64_t dice = random.below(20);
  const std::string file = model.name + "-" + std::to_string(random.below(2));
  const bool saving = std::any_of(model.ops.begin(), model.ops.end(),
                                  [&](const auto& entry) { return entry.second.file == file; });
  if (dice == 0) {
    op.args = forward_backward(random, true);
  } else if (dice == 1) {
    op.args = save(op.file = file);
  } else if (dice == 2 && !saving && model.files.count(file) != 0) {
    op.args = load(op.file = file);
    model.gradients = false;
  } else if (dice <= 5) {
    op.args = save("");
  } else if ((dice <= 10 && model.gradients) || dice == 11) {
    op.args = optim_step(random);
    model.gradients = false;
  } else {
    op.args = forward_backward(random, false);
    model.gradients = true;
  }
}

void RingClient::send_due() {
  for (const auto& model : models_) {
    std::vector<std::uint64_t> due;
    for (const auto& [seq, op] : model->ops)
      if (op.request == 0 && !op.answer && parts_.world.now() >= op.send_at) due.push_back(seq);
    if (due.size() > 1 && parts_.world.random.one_in(10)) std::swap(due.front(), due.back());
    for (const std::uint64_t seq : due) {
      const auto found = model->ops.find(seq);
      if (session_ && found != model->ops.end()) send(*model, seq, found->second);
    }
  }
}

void RingClient::send(RingModel& model, std::uint64_t seq, RingModel::Op& op) {
  if (!std::exchange(op.sent, true)) {
    op.deaths = deaths(model);
    op.pools = parts_.node.pools_made();
    op.closes = closes_;
  }
  Pending pending;
  pending.model = &model;
  pending.seq = seq;
  pending.args = op.args;
  op.request = ++last_request_;
  submit(std::move(pending), op.request);
}

void RingClient::sample(RingModel& model) {
  Random& random = parts_.world.random;
  const std::uint64_t version = random.one_in(3) ? 0 : model.version;
  Pending pending;
  pending.model = &model;
  pending.version = version;
  pending.args = random.one_in(3) ? logprobs(random, version) : generate(random, version);
  submit(std::move(pending), ++last_request_);
}

void RingClient::repeat(RingModel& model) {
  if (model.told.empty()) return;
  Pending pending;
  pending.model = &model;
  pending.seq = model.told[parts_.world.random.below(model.told.size())].first;
  pending.repeat = true;
  pending.args = optim_step(parts_.world.random);  // not looked at
  submit(std::move(pending), ++last_request_);
}

void RingClient::submit(Pending pending, std::uint64_t request) {
  pending.deaths = deaths(*pending.model);
  pending.pools = parts_.node.pools_made();
  SubmitRequest submit;
  submit.tenant = tenant_;
  submit.session = session_;
  submit.request_id = request;
  submit.submit.model = pending.model->id;
  submit.submit.seq = pending.seq;
  submit.submit.args = pending.args;
  if (pending.seq == 0) {
    submit.submit.sampling_client = 1;
    submit.submit.number = request;
  }
  submit.handler = [this, request](const OpOutcome& outcome) { answered(request, outcome); };
  pending_.emplace(request, std::move(pending));
  parts_.node.runtime().op_service().submit(std::move(submit));
}

// While engines have not said yet what they do, or are just at it.
void RingClient::after_restart() {
  Random& random = parts_.world.random;
  if (random.one_in(8)) return requeue();
  while (random.one_in(2)) cancel_some();
}

void RingClient::cancel_some() {
  if (pending_.empty()) return;
  auto chosen = pending_.begin();
  std::advance(chosen, static_cast<std::ptrdiff_t>(parts_.world.random.below(pending_.size())));
  Pending& pending = chosen->second;
  pending.cancelled = true;
  if (const auto op = pending.model->ops.find(pending.seq);
      op != pending.model->ops.end() && !pending.repeat)
    op->second.cancel_asked = true;
  parts_.node.runtime().op_service().cancel(session_, chosen->first);
}

void RingClient::probe() {
  for (const auto& model : models_) {
    RingModel::Op op;
    op.args = forward_backward(parts_.world.random, true);
    model->ops.emplace(model->next_seq++, std::move(op));
  }
}

// ---- being told ----

void RingClient::answered(std::uint64_t request, const OpOutcome& outcome) {
  parts_.world.note("told", job_, request, static_cast<std::uint64_t>(outcome.status.code()));
  if (!answered_.insert(request).second)
    return parts_.broken.add("job %u: request %" PRIu64 " is answered twice", job_, request);
  auto found = pending_.extract(request);
  // Its connection has ended meanwhile: the server finds nobody to send it to.
  if (found.empty()) return;
  RingAnswer answer{outcome.status, {}};
  if (outcome.status.ok()) answer.value = bytes_of(outcome.reply.value);
  const Pending& pending = found.mapped();
  if (pending.repeat) return answered_repeat(pending, answer);
  if (pending.seq == 0) return answered_sampling(pending, answer);
  answered_training(pending, answer);
}

void RingClient::answered_repeat(const Pending& pending, const RingAnswer& answer) {
  const RingModel& model = *pending.model;
  for (const auto& [seq, first] : model.told)
    if (seq == pending.seq && !(first == answer))
      complain(model, seq, "is answered otherwise than before", answer.status);
}

void RingClient::answered_training(const Pending& pending, const RingAnswer& answer) {
  RingModel& model = *pending.model;
  RingModel::Op& op = model.ops.at(pending.seq);
  op.request = 0;
  op.send_at = parts_.world.now() + parts_.world.random.up_to(kRetry);
  if (answer.status.scope() == Scope::kRetry) return;
  op.lost_told = op.lost_told || step_after_loss(answer.status).has_value();
  if (!answer.status.ok() && !std::exchange(op.asked_again, true)) return;
  op.answer = answer;
  judge_ready(model);
}

void RingClient::judge_ready(RingModel& model) {
  while (true) {
    if (const auto back = model.rewinds.find(model.judged); back != model.rewinds.end())
      rewind(model, back->second);
    const auto next = model.ops.find(model.judged + 1);
    if (next == model.ops.end() || !next->second.answer) return;
    judge(model, next->first, next->second);
    model.told.emplace_back(next->first, *next->second.answer);
    if (model.told.size() > kRemembered) model.told.pop_front();
    ++model.judged;
    model.ops.erase(next);
  }
}

void RingClient::judge(RingModel& model, std::uint64_t seq, RingModel::Op& op) {
  const bool good = op.answer->status.ok();
  if (const auto* save = op.args.AsSaveArgs(); save != nullptr && !op.file.empty()) {
    // One that failed may have written the file, and only the answer got lost.
    model.files.erase(op.file);
    if (good) model.files.insert(op.file);
  }
  good ? judge_good(model, seq, op) : judge_failure(model, seq, op);
}

void RingClient::judge_good(RingModel& model, std::uint64_t seq, const RingModel::Op& op) {
  const auto expected = model.reference->apply(seq, op.args, op.file);
  if (!expected) return complain(model, seq, "ended well, alone it fails", expected.error());
  if (bytes_of(*expected) != op.answer->value)
    complain(model, seq, "has another result than alone", {});
  if (publishes(op.args)) {
    model.version = seq;
    model.lost_versions = false;
  }
  ++answered_well_;
  if (op.pools == parts_.node.pools_made()) model.pools_level = op.pools;
  model.deaths_level = deaths(model);
}

void RingClient::judge_failure(RingModel& model, std::uint64_t seq, const RingModel::Op& op) {
  const Status& status = op.answer->status;
  if (has(status, "was executed, but its result could not be kept")) {
    if (!store_fails()) complain(model, seq, "lost its result though the store works", status);
    const auto value = model.reference->apply(seq, op.args, op.file);
    if (value && publishes(op.args)) model.version = seq;
    return;
  }
  if (const auto step = step_after_loss(status)) {
    if (!loss_possible(model)) complain(model, seq, "is lost without a reason", status);
    ++losses_;
    return rewind(model, *step);
  }
  const bool died_often = has(status, "times while it ran") && deaths(model) - op.deaths >= 3;
  switch (status.code()) {
    case Code::CANCELLED:
      if (!op.cancel_asked && op.closes == closes_)
        complain(model, seq, "was cancelled by nobody", status);
      return;
    case Code::INTERNAL:
      if (!died_often) complain(model, seq, "failed", status);
      return;
    case Code::NO_CAPACITY:
      if (!moves_fail()) complain(model, seq, "failed", status);
      return;
    case Code::INVALID_ARGUMENT:
    case Code::NOT_FOUND:
      if (model.reference->apply(seq, op.args, op.file))
        complain(model, seq, "failed, alone it does not", status);
      return;
    default:
      if (status.code() != Code::IO || !moves_fail()) complain(model, seq, "failed", status);
  }
}

void RingClient::answered_sampling(const Pending& pending, const RingAnswer& answer) {
  RingModel& model = *pending.model;
  const Status& status = answer.status;
  if (status.ok()) {
    const auto expected = model.reference->sample(pending.version, pending.args);
    if (!expected || bytes_of(*expected) != answer.value)
      complain(model, 0, "a sampling op has another result than alone", {});
    ++answered_well_;
    return;
  }
  if (status.scope() == Scope::kRetry) return;
  if (step_after_loss(status)) {
    if (!loss_possible(model)) complain(model, 0, "is lost without a reason", status);
    return lost(model, parts_.node.runtime().log().gone_up_to(ModelId{model.id}), status);
  }
  const bool replaced = model.version != pending.version ||
                        std::any_of(model.ops.begin(), model.ops.end(), [](const auto& entry) {
                          return publishes(entry.second.args) || entry.second.lost_told;
                        });
  // The loss that took it is told once it is on disk.
  const bool gone = parts_.node.runtime().log().gone_up_to(ModelId{model.id}) >= pending.version;
  const bool fine = (status.code() == Code::CANCELLED && pending.cancelled) ||
                    (status.code() == Code::NOT_FOUND && pending.version != 0 &&
                     (replaced || gone || model.lost_versions || parts_.node.pools_made() > 1)) ||
                    (status.code() == Code::INTERNAL && deaths(model) - pending.deaths >= 3) ||
                    (status.code() == Code::NO_CAPACITY && moves_fail()) ||
                    (status.code() == Code::IO && moves_fail());
  if (!fine) complain(model, 0, "a sampling op failed", status);
}

// ---- losses ----

// All numbers up to `last_seq` were of the state that is gone.
void RingClient::lost(RingModel& model, std::uint64_t last_seq, const Status& why) {
  ++losses_;
  model.lost_versions = true;
  model.rewinds[last_seq] = *step_after_loss(why);
  judge_ready(model);
}

void RingClient::rewind(RingModel& model, std::uint64_t step) {
  model.lost_versions = true;
  if (!model.reference->rewind(step))
    parts_.broken.add("job %u %s: is said to be at step %" PRIu64 ", where it never was", job_,
                      model.name.c_str(), step);
  std::erase_if(model.rewinds, [&](const auto& entry) { return entry.first <= model.judged; });
}

bool RingClient::loss_possible(const RingModel& model) const {
  return parts_.node.pools_made() > std::max<std::uint64_t>(model.pools_level, 1) ||
         deaths(model) - model.deaths_level >= 3 || models_.size() > 1;
}

void RingClient::complain(const RingModel& model, std::uint64_t seq, const char* what,
                          const Status& status) {
  parts_.broken.add("job %u %s op %" PRIu64 ": %s %s", job_, model.name.c_str(), seq, what,
                    status.ok() ? "" : status.to_string().c_str());
}

}  // namespace plexrl::runtime
