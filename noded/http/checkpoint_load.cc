// SPDX-License-Identifier: Apache-2.0
#include "http/checkpoint_load.h"

#include "http/body_fields.h"
#include "http/tinker_state.h"

namespace plexrl::http {
namespace {

// Kept by its callbacks.
struct Loading : std::enable_shared_from_this<Loading> {
  HttpContext& context;
  TenantId tenant;
  CheckpointLoad load;
  std::function<void(const Result<ModelId>&)> done;
  ModelId model;
  bool publishes = false;

  Loading(HttpContext& c, TenantId t, CheckpointLoad l,
          std::function<void(const Result<ModelId>&)> d)
      : context(c), tenant(t), load(std::move(l)), done(std::move(d)) {}

  void start(const Origin& origin) {
    wire::CreateModelT request;
    request.name = load.model;
    request.base = origin.base;
    request.mode = origin.mode;
    request.lora_rank = origin.rank;
    context.node.model_service().create(
        tenant, std::move(request),
        [self = shared_from_this()](const Result<wire::ModelInfoT>& made) {
          if (!made) return self->done(made.error());
          self->made(ModelId{made->model});
        });
  }

  void made(ModelId id) {
    const runtime::Model* const row = context.node.models().find(id);
    if (row == nullptr || row->removing)
      return done(error(Code::NOT_FOUND, "the model was removed"));
    model = id;
    const auto seq = load.seq(*row);
    if (!seq) return done(seq.error());
    wire::LoadArgsT args;
    args.target = wire::SaveTarget::Store;
    args.name = load.file;
    args.with_optimizer = false;
    wire::OpArgsUnion op;
    op.Set(std::move(args));
    run(*seq, std::move(op));
  }

  void run(std::uint64_t seq, wire::OpArgsUnion args) {
    runtime::SubmitRequest submit;
    submit.tenant = tenant;
    submit.session = TinkerState::owner(tenant);
    submit.request_id = context.tinker->next_request();
    submit.client = "http";
    submit.submit.model = model.value;
    submit.submit.seq = seq;
    submit.submit.args = std::move(args);
    submit.handler = [self = shared_from_this(), seq](const runtime::OpOutcome& outcome) {
      self->ended(seq, outcome.status);
    };
    context.node.op_service().submit(std::move(submit));
  }

  void ended(std::uint64_t seq, const Status& status) {
    if (!status.ok()) {
      if (status.scope() != Scope::kRetry) remove_empty();
      return done(status.within("load checkpoint '" + load.file + "'"));
    }
    if (publishes) return done(model);
    publishes = true;
    wire::OpArgsUnion publish;
    publish.Set(wire::SaveArgsT());
    run(seq + 1, std::move(publish));
  }

  // It never held what it is named after.
  void remove_empty() const {
    const runtime::Model* const row = context.node.models().find(model);
    if (row == nullptr || row->removing || row->latest_version > 0) return;
    (void)context.node.model_service().remove(tenant, model);
  }
};

}  // namespace

Result<Origin> read_origin(const runtime::CheckpointStore::Described& checkpoint) {
  Origin origin;
  std::string mode;
  const auto text = parse_body(checkpoint.text);
  if (text) {
    BodyFields fields(*text);
    fields.read("base", &origin.base);
    fields.read("mode", &mode);
    fields.read("rank", &origin.rank, 0, UINT32_MAX);
  }
  if (origin.base.empty())
    return error(Code::CORRUPT, "what checkpoint '%s' is of cannot be read",
                 checkpoint.name.c_str());
  if (mode == "full") origin.mode = wire::TrainMode::Full;
  return origin;
}

void load_checkpoint(HttpContext& context, TenantId tenant, const Origin& origin,
                     CheckpointLoad load, std::function<void(const Result<ModelId>&)> done) {
  std::make_shared<Loading>(context, tenant, std::move(load), std::move(done))->start(origin);
}

}  // namespace plexrl::http
