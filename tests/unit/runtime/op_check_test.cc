// SPDX-License-Identifier: Apache-2.0
#include "runtime/op_check.h"

#include <gtest/gtest.h>

#include <cmath>

namespace plexrl::runtime {
namespace {

Model model_of(wire::TrainMode mode = wire::TrainMode::Lora) {
  Model model;
  model.name = "policy";
  model.mode = mode;
  model.shape.vocab_size = 32;
  model.shape.max_positions = 16;
  model.shape.kv_bytes_per_position = 10;
  return model;
}

std::unique_ptr<wire::PromptT> prompt(std::vector<std::int32_t> tokens) {
  auto p = std::make_unique<wire::PromptT>();
  p->tokens = std::move(tokens);
  return p;
}

wire::SubmitOpT generate(std::uint32_t max_new = 4) {
  wire::GenerateArgsT args;
  args.prompts.push_back(prompt({1, 2, 3}));
  args.samples_per_prompt = 2;
  args.max_new_tokens = max_new;
  wire::SubmitOpT submit;
  submit.args.Set(std::move(args));
  return submit;
}

wire::SubmitOpT training(wire::ForwardBackwardArgsT args) {
  wire::SubmitOpT submit;
  submit.seq = 1;
  submit.args.Set(std::move(args));
  return submit;
}

wire::ForwardBackwardArgsT cross_entropy() {
  auto datum = std::make_unique<wire::DatumT>();
  datum->tokens = {1, 2};
  datum->target_tokens = {2, 3};
  datum->weights = {1.0F, 1.0F};
  wire::ForwardBackwardArgsT args;
  args.data.push_back(std::move(datum));
  return args;
}

Code code_of(const wire::SubmitOpT& submit, bool fd = false, const Model& model = model_of()) {
  return check_op(submit, model, fd).status().code();
}

TEST(OpCheck, SizesAGenerateByRowsAndPositions) {
  const auto size = check_op(generate(), model_of(), false).value();
  EXPECT_EQ(size.work_tokens, 2U * 7U);
  EXPECT_EQ(size.kv_bytes, 2U * 7U * 10U);
}

TEST(OpCheck, APromptThatDoesNotFitIsTooLarge) {
  EXPECT_EQ(code_of(generate(14)), Code::TOO_LARGE);
}

TEST(OpCheck, TokensOutsideOfTheVocabularyNameTheRow) {
  auto submit = generate();
  submit.args.AsGenerateArgs()->prompts[0]->tokens[1] = 32;
  const auto size = check_op(submit, model_of(), false);
  EXPECT_EQ(size.error().code(), Code::INVALID_ARGUMENT);
  EXPECT_NE(size.error().text().find("prompt 0: token 32"), std::string::npos);
  submit.args.AsGenerateArgs()->prompts[0]->tokens[1] = -1;
  EXPECT_EQ(code_of(submit), Code::INVALID_ARGUMENT);
}

TEST(OpCheck, SamplingOptionsAreBounded) {
  auto submit = generate();
  auto& args = *submit.args.AsGenerateArgs();
  args.top_p = 0.0F;
  EXPECT_EQ(code_of(submit), Code::INVALID_ARGUMENT);
  args.top_p = 1.0F;
  args.temperature = std::nanf("");
  EXPECT_EQ(code_of(submit), Code::INVALID_ARGUMENT);
  args.temperature = 1.0F;
  args.samples_per_prompt = 1U << 31;
  EXPECT_EQ(code_of(submit), Code::INVALID_ARGUMENT);
  args.samples_per_prompt = 0;
  EXPECT_EQ(code_of(submit), Code::INVALID_ARGUMENT);
}

TEST(OpCheck, EmptyPromptsAreRefused) {
  auto submit = generate();
  submit.args.AsGenerateArgs()->prompts[0]->tokens.clear();
  EXPECT_EQ(code_of(submit), Code::INVALID_ARGUMENT);
  submit.args.AsGenerateArgs()->prompts[0] = nullptr;
  EXPECT_EQ(code_of(submit), Code::INVALID_ARGUMENT);
}

TEST(OpCheck, ArraysOfADatumHaveOneLength) {
  EXPECT_EQ(code_of(training(cross_entropy())), Code::OK);
  auto args = cross_entropy();
  args.data[0]->weights.pop_back();
  EXPECT_EQ(code_of(training(std::move(args))), Code::INVALID_ARGUMENT);
  args = cross_entropy();
  args.loss = wire::LossKind::Ppo;  // needs logprobs and advantages
  EXPECT_EQ(code_of(training(std::move(args))), Code::INVALID_ARGUMENT);
  args = cross_entropy();
  args.data[0]->weights[0] = INFINITY;
  EXPECT_EQ(code_of(training(std::move(args))), Code::INVALID_ARGUMENT);
}

TEST(OpCheck, NumbersOfALossAreInTheirRange) {
  const auto answer = [](auto&& spoil) {
    auto args = cross_entropy();
    spoil(args);
    return code_of(training(std::move(args)));
  };
  using Args = wire::ForwardBackwardArgsT;
  EXPECT_EQ(answer([](Args& a) { a.beta = 0; }), Code::OK);
  EXPECT_EQ(answer([](Args& a) { a.beta = -1; }), Code::INVALID_ARGUMENT);
  EXPECT_EQ(answer([](Args& a) { a.beta = NAN; }), Code::INVALID_ARGUMENT);
  EXPECT_EQ(answer([](Args& a) { a.beta = INFINITY; }), Code::INVALID_ARGUMENT);
  EXPECT_EQ(answer([](Args& a) { a.clip_high = 0.5F; }), Code::INVALID_ARGUMENT);
  EXPECT_EQ(answer([](Args& a) { a.loss = static_cast<wire::LossKind>(5); }), Code::UNSUPPORTED);
}

TEST(OpCheck, TrainingNeedsANumberAndSamplingHasNone) {
  auto submit = training(cross_entropy());
  submit.seq = 0;
  EXPECT_EQ(code_of(submit), Code::INVALID_ARGUMENT);
  auto sampling = generate();
  sampling.seq = 3;
  EXPECT_EQ(code_of(sampling), Code::INVALID_ARGUMENT);
}

TEST(OpCheck, ASamplingOnlyModelDoesNotTrain) {
  EXPECT_EQ(code_of(training(cross_entropy()), false, model_of(wire::TrainMode::None)),
            Code::PERMISSION);
}

TEST(OpCheck, FilesNeedNamesOrDescriptors) {
  wire::SaveArgsT save;
  save.target = wire::SaveTarget::Store;
  save.name = "../../etc/passwd";
  wire::SubmitOpT submit;
  submit.seq = 1;
  submit.args.Set(save);
  EXPECT_EQ(code_of(submit), Code::INVALID_ARGUMENT);
  submit.args.AsSaveArgs()->name = "step-10";
  EXPECT_EQ(code_of(submit), Code::OK);
  EXPECT_EQ(code_of(submit, true), Code::INVALID_ARGUMENT);
  submit.args.AsSaveArgs()->target = wire::SaveTarget::ClientFd;
  EXPECT_EQ(code_of(submit), Code::INVALID_ARGUMENT);
  EXPECT_EQ(code_of(submit, true), Code::OK);
}

TEST(OpCheck, AnUnknownOpIsUnsupported) {
  wire::SubmitOpT submit;
  submit.seq = 1;
  EXPECT_EQ(code_of(submit), Code::UNSUPPORTED);
}

TEST(OpCheck, Names) {
  EXPECT_TRUE(valid_name("a.b_C-9"));
  for (const char* bad : {"", ".", "..", "a/b", "a b", "#draft1"})
    EXPECT_FALSE(valid_name(bad)) << bad;
  EXPECT_FALSE(valid_name(std::string(65, 'a')));
}

}  // namespace
}  // namespace plexrl::runtime
