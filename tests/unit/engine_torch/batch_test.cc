// SPDX-License-Identifier: Apache-2.0
// Batches of several generate requests: what each draws is what it draws alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <set>

#include "engine_torch/batch_decoder.h"
#include "engine_torch/compute_threads.h"
#include "engine_torch/row_lora.h"
#include "held_model.h"

namespace plexrl::model {
namespace {

using wire::TrainMode;

// A request with the cache of its rows.
struct Asked {
  Asked(HeldModel& of, wire::GenerateArgsT asked)
      : model(of),
        args(std::move(asked)),
        cache(*kv_bytes(of.layout.config, args) / sizeof(float)),
        request(make()) {}
  GenerateRequest make() {
    std::fill(cache.span().begin(), cache.span().end(), std::nanf(""));
    OpEnv env;
    env.state = &model.state;
    env.kv = std::as_writable_bytes(cache.span());
    return std::move(GenerateRequest::make(env, args)).value();
  }
  HeldModel& model;
  wire::GenerateArgsT args;
  Arena cache;
  GenerateRequest request;
};

void expect_equal(const wire::GenerateResultT& got, const wire::GenerateResultT& want) {
  EXPECT_EQ(got.version, want.version);
  ASSERT_EQ(got.sequences.size(), want.sequences.size());
  for (std::size_t r = 0; r < want.sequences.size(); ++r) {
    EXPECT_EQ(got.sequences[r]->tokens, want.sequences[r]->tokens) << r;
    EXPECT_EQ(got.sequences[r]->logprobs, want.sequences[r]->logprobs) << r;
    EXPECT_EQ(got.sequences[r]->finish, want.sequences[r]->finish) << r;
  }
}

// Adapters of several ranks, and the base itself, on one base; a request of each and a second one
// of the first.
class Tenants {
 public:
  explicit Tenants(const ModelConfig& config, WeightType type = WeightType::kFloat32) {
    for (const std::uint32_t rank : {8U, 3U, 16U, 21U})
      add(layout_of(config, TrainMode::Lora, rank, type));
    add(layout_of(config, TrainMode::None, 0, type));
    for (std::size_t i = 0; i < models_.size(); ++i) ask(models_[i], i);
    ask(models_[0], models_.size());
  }
  std::deque<Asked>& asked() { return asked_; }
  std::deque<HeldModel>& models() { return models_; }

  static wire::GenerateResultT alone(const Asked& asked) {
    auto value = run_op(asked.model, args_union(asked.args));
    EXPECT_TRUE(value) << value.error().to_string();
    return *value->AsGenerateResult();
  }
  BatchDecoder batch() { return BatchDecoder(models_[0].state, 1); }

 private:
  void add(ModelLayout layout) {
    const bool adapter = layout.mode == TrainMode::Lora;
    HeldModel& model = models_.emplace_back(std::move(layout), 7);
    model.state.memory.base = models_[0].state.memory.base;
    model.state.memory.base16 = models_[0].state.memory.base16;
    model.shake(0.1, 50 + models_.size());
    if (adapter) model.publish(models_.size());
  }
  // No two with the same rules, lengths or numbers of rows.
  void ask(HeldModel& model, std::size_t i) {
    const auto n = static_cast<std::uint32_t>(i);
    const std::int64_t vocab = model.layout.config.vocab_size;
    std::mt19937 random(n + 11);
    wire::GenerateArgsT args;
    args.version = model.state.sampler_version;
    for (std::uint32_t p = 0; p <= n % 3; ++p)
      args.prompts.push_back(prompt(random_tokens(random, 2 + (7 * i + p) % 13, vocab)));
    args.samples_per_prompt = 1 + n % 4;
    args.max_new_tokens = 6 + 2 * n;
    args.seed = 1000 + n;
    args.temperature = i == 3 ? 0.0F : 0.6F + 0.2F * static_cast<float>(i);
    args.top_p = i % 2 == 0 ? 1.0F : 0.8F;
    for (std::uint32_t s = 0; s < n; ++s) args.stop_tokens.push_back(static_cast<int>(s) + 1);
    asked_.emplace_back(model, std::move(args));
  }

  std::deque<HeldModel> models_;
  std::deque<Asked> asked_;
};

void step_all_well(BatchDecoder& batch) {
  auto failures = batch.step();
  ASSERT_TRUE(failures) << failures.error().to_string();
  EXPECT_TRUE(failures->empty()) << failures->front().error.to_string();
}

void finish(BatchDecoder& batch, std::deque<Asked>& asked) {
  const auto finished = [](const Asked& a) { return a.request.finished(); };
  for (int step = 0; !std::all_of(asked.begin(), asked.end(), finished); ++step) {
    ASSERT_LT(step, 1000);
    step_all_well(batch);
  }
}

void expect_each_as_alone(const ModelConfig& config, WeightType type) {
  Tenants tenants(config, type);
  BatchDecoder batch = tenants.batch();
  for (Asked& asked : tenants.asked()) batch.join(asked.request);
  finish(batch, tenants.asked());
  for (Asked& asked : tenants.asked())
    expect_equal(asked.request.take_result(), Tenants::alone(asked));
}

TEST(Batch, EachRequestDrawsWhatItDrawsAlone) {
  for (const WeightType type : {WeightType::kFloat32, WeightType::kBFloat16})
    for (const ModelConfig& config :
         {demo_config(), tiny_config(Family::kQwen2), tiny_config(Family::kQwen3)})
      expect_each_as_alone(config, type);
}

TEST(Batch, EachRequestDrawsWhatItDrawsAloneOnTwoThreads) {
  set_compute_threads(2);
  apply_compute_threads();
  expect_each_as_alone(demo_config(), WeightType::kFloat32);
  set_compute_threads(1);
  apply_compute_threads();
}

// Requests of one model in one op: their rows draw by their own seeds and numbers.
TEST(Batch, GroupsDrawWhatEachDrawsAlone) {
  Tenants tenants(demo_config());
  HeldModel& model = tenants.models()[0];
  const std::int64_t vocab = model.layout.config.vocab_size;
  std::mt19937 random(3);
  std::vector<wire::GenerateArgsT> each;
  wire::GenerateArgsT all;
  for (std::uint32_t i = 0; i < 4; ++i) {
    wire::GenerateArgsT args;
    args.version = model.state.sampler_version;
    args.samples_per_prompt = 3;
    args.max_new_tokens = 9;
    args.seed = i % 2 == 0 ? 7 : 70 + i;  // two have the same
    for (std::uint32_t p = 0; p <= i % 2; ++p)
      args.prompts.push_back(prompt(random_tokens(random, 3 + i, vocab)));
    if (all.prompts.empty()) {
      all = args;
      all.prompts.clear();
    }
    for (const auto& one : args.prompts)
      all.prompts.push_back(std::make_unique<wire::PromptT>(*one));
    auto group = std::make_unique<wire::GenerateGroupT>();
    group->prompts = static_cast<std::uint32_t>(args.prompts.size());
    group->seed = args.seed;
    all.groups.push_back(std::move(group));
    each.push_back(std::move(args));
  }
  const auto value = run_op(model, args_union(all));
  ASSERT_TRUE(value) << value.error().to_string();
  std::size_t row = 0;
  for (const wire::GenerateArgsT& args : each) {
    Asked asked(model, args);
    const wire::GenerateResultT want = Tenants::alone(asked);
    for (const auto& sequence : want.sequences) {
      EXPECT_EQ(value->AsGenerateResult()->sequences[row]->tokens, sequence->tokens) << row;
      EXPECT_EQ(value->AsGenerateResult()->sequences[row]->logprobs, sequence->logprobs) << row;
      ++row;
    }
  }
  EXPECT_EQ(row, value->AsGenerateResult()->sequences.size());
  all.groups.pop_back();
  EXPECT_EQ(run_op(model, args_union(all)).error().code(), Code::INVALID_ARGUMENT);
}

// As the engine runs them.
TEST(Batch, OpsRunAsOneBatch) {
  Tenants tenants(demo_config());
  std::vector<std::unique_ptr<OpRun>> runs;
  std::unique_ptr<OpBatch> batch;
  for (Asked& asked : tenants.asked()) {
    OpEnv env;
    env.state = &asked.model.state;
    env.kv = std::as_writable_bytes(asked.cache.span());
    runs.push_back(std::move(make_op_run(env, args_union(asked.args))).value());
    if (!batch) batch = runs.back()->make_batch();
    ASSERT_TRUE(batch->fits(*runs.back()));
    ASSERT_TRUE(batch->join(*runs.back()).ok());
  }
  std::set<const OpRun*> ended;
  for (int step = 0; ended.size() < runs.size(); ++step) {
    ASSERT_LT(step, 1000);
    const auto left = batch->step();
    ASSERT_TRUE(left) << left.error().to_string();
    for (const OpBatch::Ended& end : *left) {
      EXPECT_TRUE(end.status.ok()) << end.status.to_string();
      EXPECT_TRUE(ended.insert(end.run).second) << "it ends once";
    }
  }
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const wire::OpValueUnion value = runs[i]->take_result();
    expect_equal(*value.AsGenerateResult(), Tenants::alone(tenants.asked()[i]));
  }
}

TEST(Batch, OnlyGenerateOpsAreBatched) {
  Tenants tenants(demo_config());
  OpEnv env;
  env.state = &tenants.models()[0].state;
  env.version_out = 9;
  const auto publish = make_op_run(env, args_union(wire::SaveArgsT()));
  ASSERT_TRUE(publish) << publish.error().to_string();
  EXPECT_EQ((*publish)->make_batch(), nullptr);
  env.kv = std::as_writable_bytes(tenants.asked()[0].cache.span());
  const auto sampling = make_op_run(env, args_union(tenants.asked()[0].args));
  ASSERT_TRUE(sampling) << sampling.error().to_string();
  EXPECT_FALSE((*sampling)->make_batch()->fits(**publish));
}

TEST(Batch, AdaptersMatter) {
  Tenants tenants(demo_config());
  std::set<std::vector<float>> seen;
  for (HeldModel& model : tenants.models()) {
    wire::GenerateArgsT args = tenants.asked()[0].args;
    args.version = model.state.sampler_version;
    Asked asked(model, std::move(args));
    seen.insert(Tenants::alone(asked).sequences[0]->logprobs);
  }
  EXPECT_EQ(seen.size(), tenants.models().size());
}

TEST(Batch, RequestsJoinInTheMiddle) {
  Tenants tenants(demo_config());
  BatchDecoder batch = tenants.batch();
  for (Asked& asked : tenants.asked()) {
    batch.join(asked.request);
    step_all_well(batch);
    step_all_well(batch);
  }
  finish(batch, tenants.asked());
  for (Asked& asked : tenants.asked())
    expect_equal(asked.request.take_result(), Tenants::alone(asked));
}

// Every other request leaves and goes on later, in another batch.
TEST(Batch, RequestsLeaveEarlyAndGoOnElsewhere) {
  Tenants tenants(demo_config());
  BatchDecoder batch = tenants.batch();
  for (Asked& asked : tenants.asked()) batch.join(asked.request);
  step_all_well(batch);
  for (std::size_t i = 0; i < tenants.asked().size(); i += 2) {
    EXPECT_FALSE(tenants.asked()[i].request.finished()) << i;
    batch.leave(tenants.asked()[i].request);
  }
  for (int step = 0; step < 3; ++step) {
    const std::uint64_t before = tenants.asked()[0].request.tokens_done();
    step_all_well(batch);
    EXPECT_EQ(tenants.asked()[0].request.tokens_done(), before);
  }
  BatchDecoder other = tenants.batch();
  for (std::size_t i = 0; i < tenants.asked().size(); i += 2)
    other.join(tenants.asked()[i].request);
  const auto finished = [](const Asked& a) { return a.request.finished(); };
  while (!std::all_of(tenants.asked().begin(), tenants.asked().end(), finished)) {
    step_all_well(batch);
    step_all_well(other);
  }
  for (Asked& asked : tenants.asked())
    expect_equal(asked.request.take_result(), Tenants::alone(asked));
}

// One adapter has diverged and another is replaced: they fail by name, nobody else notices.
TEST(Batch, AFailureIsOfItsRequestAlone) {
  Tenants tenants(demo_config());
  std::vector<wire::GenerateResultT> want;
  for (const Asked& asked : tenants.asked()) want.push_back(Tenants::alone(asked));
  HeldModel& diverged = tenants.models()[2];
  diverged.sampler.span()[diverged.layout.trainable.slots.back().offset] = std::nanf("");
  BatchDecoder batch = tenants.batch();
  for (Asked& asked : tenants.asked()) batch.join(asked.request);
  auto failures = batch.step();
  ASSERT_TRUE(failures);
  ASSERT_EQ(failures->size(), 1U);
  EXPECT_EQ(failures->front().request, &tenants.asked()[2].request);
  EXPECT_NE(failures->front().error.text().find("version 3 gives logits that are not finite"),
            std::string::npos);
  tenants.models()[1].publish(9);
  failures = batch.step();
  ASSERT_TRUE(failures);
  ASSERT_EQ(failures->size(), 1U);
  EXPECT_EQ(failures->front().request, &tenants.asked()[1].request);
  EXPECT_EQ(failures->front().error.code(), Code::NOT_FOUND);
  for (const std::size_t i : {0U, 3U, 4U, 5U})
    while (!tenants.asked()[i].request.finished()) step_all_well(batch);
  for (const std::size_t i : {0U, 3U, 4U, 5U})
    expect_equal(tenants.asked()[i].request.take_result(), want[i]);
}

// 60 prompts of 40 tokens are ten steps of prompts; the rows of the other request get a token in
// each, and a short request that comes later does not wait for all of them.
TEST(Batch, LongPromptsStopNobody) {
  HeldModel model(layout_of(demo_config(), TrainMode::None));
  std::mt19937 random(3);
  wire::GenerateArgsT few, many;
  few.prompts.push_back(prompt({1, 2, 3}));
  few.samples_per_prompt = few.max_new_tokens = 8;
  for (int p = 0; p < 60; ++p) many.prompts.push_back(prompt(random_tokens(random, 40, 32)));
  many.samples_per_prompt = many.max_new_tokens = 2;
  Asked long_prompts(model, many), rows(model, few), late(model, few);
  BatchDecoder batch(model.state, 0);
  batch.join(long_prompts.request);
  batch.join(rows.request);
  for (int step = 0; step < 4; ++step) step_all_well(batch);
  EXPECT_EQ(rows.request.tokens_done(), 3U + 3 * 8);  // the first tokens come from the prompt
  batch.join(late.request);
  for (int step = 0; step < 4; ++step) step_all_well(batch);
  EXPECT_TRUE(rows.request.finished());
  EXPECT_EQ(late.request.tokens_done(), 3U + 3 * 8);
  EXPECT_TRUE(long_prompts.request.has_prompts());
  while (!long_prompts.request.finished()) step_all_well(batch);
  expect_equal(long_prompts.request.take_result(), Tenants::alone(long_prompts));
}

// More rows than a chunk: prompts get their share all the same.
TEST(Batch, ManyRowsDoNotStopPrompts) {
  HeldModel model(layout_of(demo_config(), TrainMode::None));
  wire::GenerateArgsT many, few;
  many.prompts.push_back(prompt({4, 5}));
  many.samples_per_prompt = 256;
  many.max_new_tokens = 30;
  few.prompts.push_back(prompt({1, 2, 3}));
  few.samples_per_prompt = 1;
  few.max_new_tokens = 4;
  Asked rows(model, many), late(model, few);
  BatchDecoder batch(model.state, 0);
  batch.join(rows.request);
  step_all_well(batch);
  batch.join(late.request);
  for (int step = 0; step < 4; ++step) step_all_well(batch);
  EXPECT_TRUE(late.request.finished());
  expect_equal(late.request.take_result(), Tenants::alone(late));
  while (!rows.request.finished()) step_all_well(batch);
  expect_equal(rows.request.take_result(), Tenants::alone(rows));
}

TEST(Batch, IsOfOneBaseOrOneVersionOfAFullModel) {
  HeldModel lora(layout_of(demo_config(), TrainMode::Lora, 4));
  HeldModel base(layout_of(demo_config(), TrainMode::None));
  HeldModel full(layout_of(demo_config(), TrainMode::Full));
  full.publish(3);
  const BatchDecoder of_base(base.state, 0);
  EXPECT_TRUE(of_base.fits(base.state, 0));
  EXPECT_FALSE(of_base.fits(lora.state, 0));
  lora.state.memory.base = base.state.memory.base;
  EXPECT_TRUE(of_base.fits(lora.state, 0));
  EXPECT_TRUE(of_base.fits(lora.state, 12));
  lora.state.device.math = ModelDevice::Math::kAten;
  EXPECT_FALSE(of_base.fits(lora.state, 0));
  EXPECT_FALSE(of_base.fits(full.state, 3));
  const BatchDecoder of_full(full.state, 3);
  EXPECT_TRUE(of_full.fits(full.state, 3));
  EXPECT_FALSE(of_full.fits(full.state, 4));
  EXPECT_FALSE(of_full.fits(base.state, 3));
}

TEST(Batch, TheAtenFormDrawsTheSameTokens) {
  Tenants kernels(demo_config()), aten(demo_config());
  for (HeldModel& model : aten.models()) model.state.device.math = ModelDevice::Math::kAten;
  BatchDecoder batch = aten.batch();
  for (Asked& asked : aten.asked()) batch.join(asked.request);
  finish(batch, aten.asked());
  for (std::size_t i = 0; i < aten.asked().size(); ++i) {
    const auto got = aten.asked()[i].request.take_result();
    const auto want = Tenants::alone(kernels.asked()[i]);
    for (std::size_t r = 0; r < want.sequences.size(); ++r) {
      EXPECT_EQ(got.sequences[r]->tokens, want.sequences[r]->tokens) << i << ' ' << r;
      for (std::size_t t = 0; t < want.sequences[r]->logprobs.size(); ++t)
        EXPECT_NEAR(got.sequences[r]->logprobs[t], want.sequences[r]->logprobs[t], 1e-4F);
    }
  }
}

struct LoraShape {
  std::int64_t in, out;
  std::vector<std::int64_t> ranks, counts;
};

std::vector<float> random_floats(std::mt19937& random, std::int64_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

class RowLora : public testing::TestWithParam<LoraShape> {
 protected:
  RowLora() {
    const LoraShape& shape = GetParam();
    std::mt19937 random(3);
    for (std::size_t i = 0; i < shape.ranks.size(); ++i) {
      a_.push_back(random_floats(random, shape.ranks[i] * shape.in));
      b_.push_back(random_floats(random, shape.ranks[i] * shape.out));
      matrices_.push_back({a_[i].data(), b_[i].data(), shape.ranks[i], 0.3F});
      groups_.push_back({nullptr, rows_, shape.counts[i]});
      rows_ += shape.counts[i];
    }
    for (std::size_t i = 0; i < groups_.size(); ++i) groups_[i].matrix = &matrices_[i];
    x_ = random_floats(random, rows_ * shape.in);
    y_ = random_floats(random, rows_ * shape.out);
    z_.resize(static_cast<std::size_t>(rows_ * 64));
  }
  std::vector<float> added(std::span<const LoraRows> some) {
    std::vector<float> y = y_;
    add_lora(some, x_.data(), y.data(), z_.data(), GetParam().in, GetParam().out);
    return y;
  }
  std::span<const float> row(const std::vector<float>& y, std::int64_t r) const {
    const auto out = static_cast<std::size_t>(GetParam().out);
    return std::span(y).subspan(static_cast<std::size_t>(r) * out, out);
  }
  // In double; what the kernel adds.
  std::vector<double> by_definition(const LoraMatrix& m, std::int64_t r) const {
    const auto [in, out] = std::pair(GetParam().in, GetParam().out);
    std::vector<double> sum(static_cast<std::size_t>(out));
    for (std::int64_t k = 0; k < m.rank; ++k) {
      double z = 0;
      for (std::int64_t i = 0; i < in; ++i)
        z += static_cast<double>(x_[static_cast<std::size_t>(r * in + i)]) *
             static_cast<double>(m.a[k * in + i]);
      for (std::int64_t o = 0; o < out; ++o)
        sum[static_cast<std::size_t>(o)] +=
            static_cast<double>(m.scale) * z * static_cast<double>(m.b[k * out + o]);
    }
    return sum;
  }
  std::int64_t rows_ = 1;  // the first has no adapter
  std::vector<std::vector<float>> a_, b_;
  std::vector<LoraMatrix> matrices_;
  std::vector<LoraRows> groups_;
  std::vector<float> x_, y_, z_;
};
INSTANTIATE_TEST_SUITE_P(Shapes, RowLora,
                         testing::Values(LoraShape{7, 3, {1}, {1}},
                                         LoraShape{48, 64, {8, 16}, {3, 17}},
                                         LoraShape{130, 83, {5, 64, 8}, {1, 9, 2}},
                                         LoraShape{576, 1536, {8, 8, 8, 8}, {1, 1, 1, 1}}));

TEST_P(RowLora, AgreesWithTheDefinitionInDouble) {
  const std::vector<float> got = added(groups_);
  for (const LoraRows& group : groups_)
    for (std::int64_t r = group.first; r < group.first + group.count; ++r) {
      const std::vector<double> sum = by_definition(*group.matrix, r);
      for (std::size_t o = 0; o < sum.size(); ++o)
        ASSERT_NEAR(static_cast<double>(row(got, r)[o]),
                    static_cast<double>(row(y_, r)[o]) + sum[o], 3e-4);
    }
  EXPECT_TRUE(std::ranges::equal(row(got, 0), row(y_, 0)));
}

TEST_P(RowLora, BitsOfARowDoNotDependOnTheOthers) {
  const std::vector<float> all = added(groups_);
  for (const LoraRows& group : groups_)
    for (std::int64_t r = group.first; r < group.first + group.count; ++r) {
      const LoraRows alone{group.matrix, r, 1};
      ASSERT_TRUE(std::ranges::equal(row(added({&alone, 1}), r), row(all, r))) << r;
    }
}

}  // namespace
}  // namespace plexrl::model
