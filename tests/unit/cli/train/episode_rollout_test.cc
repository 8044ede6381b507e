// SPDX-License-Identifier: Apache-2.0
#include "cli/train/episode_rollout.h"

#include <deque>

#include "cli/train/grpo.h"
#include "unit/cli/train/env_script.h"
#include "unit/cli/train/fake_service.h"

namespace plexrl::cli {
namespace {

// Answers each row with the next of some texts that end by ';' or are cut.
class ScriptedService final : public Service {
 public:
  explicit ScriptedService(const TextTokenizer& tokenizer) : tokenizer_(tokenizer) {}
  std::vector<std::string> texts;  // by round; the last one for all later rounds
  std::vector<GenerateRequest> requests;

  Result<FuturePtr<std::vector<Sequence>>> generate(const GenerateRequest& request) override {
    const std::string& text = texts[std::min(requests.size(), texts.size() - 1)];
    requests.push_back(request);
    std::vector<Sequence> rows;
    for (std::size_t row = 0; row < request.prompts.size(); ++row) {
      Sequence sequence;
      sequence.tokens = tokenizer_.encode(text).value();
      sequence.stopped = text.ends_with(';');
      for (std::size_t i = 0; i < sequence.tokens.size(); ++i)
        sequence.logprobs.push_back(-1.0F - static_cast<float>(i));
      rows.push_back(std::move(sequence));
    }
    return FuturePtr<std::vector<Sequence>>(
        std::make_unique<ReadyFuture<std::vector<Sequence>>>(std::move(rows)));
  }
  Result<ModelFacts> model() override { return none(); }
  Result<FuturePtr<std::vector<std::vector<float>>>> logprobs(std::uint64_t,
                                                              const std::vector<Tokens>&) override {
    return none();
  }
  Result<FuturePtr<LossResult>> forward_backward(const LossRequest&,
                                                 const std::vector<Datum>&) override {
    return none();
  }
  Result<FuturePtr<OptimResult>> optim_step(const OptimRequest&) override { return none(); }
  Result<FuturePtr<SaveResult>> publish() override { return none(); }
  Result<FuturePtr<SaveResult>> save_fd(int, SaveFormat) override { return none(); }
  Result<FuturePtr<SaveResult>> load_fd(int) override { return none(); }

 private:
  static Status none() { return error(Code::UNSUPPORTED, "not in this test"); }
  const TextTokenizer& tokenizer_;
};

constexpr const char* kNoHook = "hook() { :; }\n";
// A reset shows the last digit of the seed; after the first answer "?3" and 0.25, after the
// second the end and 0.5.
constexpr const char* kTwoTurns = R"(
while next; do
  case $line in
  *reset*) seed=${line#*\"seed\":}; seed=${seed%%[,\}]*}
    turn=0; say "\"observation\":\"$((seed % 10))=\"";;
  *) hook; turn=$((turn + 1))
    if [ $turn = 1 ]; then say '"observation":"?3","reward":0.25,"done":false'
    else say '"reward":0.5,"done":true'; fi;;
  esac
done
)";

class EpisodeTest : public EnvScriptTest {
 protected:
  EpisodeTest()
      : tokenizer_(CharTokenizer::parse(
                       R"({"type":"char","alphabet":"0123456789+=>;ab?","vocab_size":32})")
                       .value()),
        service_(tokenizer_) {
    limits_ = {tokenizer_.encode(";").value(), 4, 64};
    service_.texts = {"7;", "8;"};
  }
  Result<RolloutBatch> run(const std::string& script, const std::vector<std::uint64_t>& seeds,
                           std::uint32_t samples, std::size_t workers) {
    testing::internal::CaptureStderr();
    const PromptFormat format(tokenizer_);
    OpMeter meter(system_clock());
    EnvPool pool(in_folder(worker_script(script)), workers, Duration{120 * kSecond.ns});
    GenerateRequest request;
    request.samples_per_prompt = samples;
    EpisodeRollout rollout(service_, meter, pool, tokenizer_, format, options_, limits_);
    auto batch = rollout.run(seeds, false, request, Random(1, Stream::kRolloutSeed, 0));
    progress_ = testing::internal::GetCapturedStderr();
    return batch;
  }
  Tokens tokens(const std::string& text) const { return tokenizer_.encode(text).value(); }

  CharTokenizer tokenizer_;
  ScriptedService service_;
  TrainOptions options_;
  AnswerLimits limits_;
  std::string progress_;
};

TEST_F(EpisodeTest, WhatTheEnvironmentSaysIsInTheContextAndNotInTheLoss) {
  const auto batch = run(kNoHook + std::string(kTwoTurns), {5}, 1, 1);
  ASSERT_TRUE(batch.has_value()) << batch.error().to_string();
  ASSERT_EQ(service_.requests.size(), 2U);
  EXPECT_EQ(service_.requests[0].prompts, (std::vector<Tokens>{tokens("5=")}));
  EXPECT_EQ(service_.requests[1].prompts, (std::vector<Tokens>{tokens("5=7;?3")}));
  EXPECT_EQ(batch->rewards, (std::vector<double>{0.75}));
  EXPECT_EQ(batch->new_tokens, 4U);
  EXPECT_EQ(batch->stopped, 1U);
  const Datum datum = ppo_datum(batch->prompts[0], batch->sequences[0], 2.0F);
  //                                5     =     7     ;     ?     3     8
  EXPECT_EQ(datum.tokens, tokens("5=7;?38"));
  EXPECT_EQ(datum.targets, tokens("=7;?38;"));
  EXPECT_EQ(datum.advantages, (std::vector<float>{0, 2, 2, 0, 0, 2, 2}));
  EXPECT_EQ(datum.logprobs, (std::vector<float>{0, -1, -2, 0, 0, -1, -2}));
}

TEST_F(EpisodeTest, AnswersReachTheEnvironmentWithoutTheirEnd) {
  service_.texts = {"7ab;", "12"};
  const auto batch = run(R"(
while next; do echo "$line" >>seen
  case $line in *reset*) say '"observation":"1="';; *12*) say '"reward":1,"done":true';;
  *) say '"observation":"?","reward":0,"done":false';; esac
done)",
                         {1}, 1, 1);
  ASSERT_TRUE(batch.has_value()) << batch.error().to_string();
  EXPECT_EQ(batch->stopped, 0U) << "the last answer was cut";
  std::ifstream file(path("seen"));
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line, R"({"id":2,"op":"reset","seed":1,"split":"train"})");
  std::getline(file, line);
  EXPECT_EQ(line, R"({"action":"7ab","id":3,"op":"step","stopped":true})");
  std::getline(file, line);
  EXPECT_EQ(line, R"({"action":"12","id":4,"op":"step","stopped":false})");
}

// More episodes than workers; rows stay in the order of prompts and samples.
TEST_F(EpisodeTest, AFewWorkersServeManyEpisodesTheSameWayEachTime) {
  const auto batch = run(kNoHook + std::string(kTwoTurns), {1, 2, 3}, 2, 4);
  ASSERT_TRUE(batch.has_value()) << batch.error().to_string();
  EXPECT_EQ(batch->prompts, (std::vector<Tokens>{tokens("1="), tokens("2="), tokens("3=")}));
  EXPECT_EQ(batch->sequences.size(), 6U);
  EXPECT_EQ(service_.requests[0].prompts.size(), 4U);
  const auto requests = service_.requests;
  service_.requests.clear();
  ASSERT_TRUE(run(kNoHook + std::string(kTwoTurns), {1, 2, 3}, 2, 4).has_value());
  ASSERT_EQ(service_.requests.size(), requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(service_.requests[i].prompts, requests[i].prompts);
    EXPECT_EQ(service_.requests[i].seed, requests[i].seed);
  }
}

TEST_F(EpisodeTest, TurnsAndRoomAreBounded) {
  const std::string endless = R"(
while next; do
  case $line in *reset*) say '"observation":"1="';;
  *) say '"observation":"?","reward":0.125,"done":false';; esac
done)";
  options_.max_turns = 3;
  const auto turns = run(endless, {1}, 1, 1);
  ASSERT_TRUE(turns.has_value()) << turns.error().to_string();
  EXPECT_EQ(turns->rewards, (std::vector<double>{0.375}));
  EXPECT_EQ(turns->sequences[0].tokens, tokens("7;?8;?8;")) << "it ends with what the model said";
  options_.max_turns = 100;
  service_.requests.clear();
  limits_.max_positions = 12;  // 1= 7; ? 8; ? and 4 more are 12
  const auto room = run(endless, {1}, 1, 1);
  ASSERT_TRUE(room.has_value()) << room.error().to_string();
  EXPECT_EQ(room->sequences[0].tokens, tokens("7;?8;?8;"));
}

// One of the workers dies in a step, whichever comes first.
TEST_F(EpisodeTest, AFailedEpisodeIsDroppedAndMovesNoAdvantage) {
  const std::string dies =
      "hook() { if mkdir used 2>/dev/null; then echo boom >&2; exit 3; fi; }\n";
  const auto batch = run(dies + kTwoTurns, {1, 2}, 3, 6);
  ASSERT_TRUE(batch.has_value()) << batch.error().to_string();
  EXPECT_EQ(batch->failed, 1U);
  EXPECT_EQ(batch->rewards, (std::vector<double>(6, 0.75)));
  std::size_t masked = 0;
  for (const Sequence& sequence : batch->sequences) masked += sequence.own_tokens() == 0 ? 1 : 0;
  EXPECT_EQ(masked, 1U);
  for (std::size_t row = 0; row < 6; ++row) {
    const Datum datum = ppo_datum(batch->prompts[row / 3], batch->sequences[row], 1.0F);
    const bool none = batch->sequences[row].own_tokens() == 0;
    double sum = 0.0;
    for (const float advantage : datum.advantages) sum += static_cast<double>(advantage);
    EXPECT_EQ(sum, none ? 0.0 : 4.0);
  }
  EXPECT_NE(progress_.find("1 of 6 episodes dropped"), std::string::npos) << progress_;
  EXPECT_NE(progress_.find("boom"), std::string::npos) << progress_;
}

TEST_F(EpisodeTest, ARewardThatIsNoneFailsTheEpisode) {
  for (const char* reply :
       {"\"done\":true", "\"reward\":1", "\"reward\":\"1\",\"done\":true",
        "\"reward\":true,\"done\":true", "\"reward\":1e7,\"done\":true",
        "\"reward\":1e999,\"done\":true", "\"reward\":NaN,\"done\":true",
        "\"reward\":0,\"done\":false", "\"reward\":0,\"done\":false,\"observation\":7",
        "\"reward\":0,\"done\":false,\"observation\":\"not of the alphabet\"",
        "\"reward\":0,\"done\":false,\"messages\":[]"}) {
    const auto batch =
        run("while next; do case $line in *reset*) say '\"observation\":\"1=\"';; "
            "*) say '" +
                std::string(reply) + "';; esac; done",
            {1}, 2, 2);
    ASSERT_FALSE(batch.has_value()) << reply;
    EXPECT_NE(batch.error().text().find("all 2 episodes failed"), std::string::npos)
        << batch.error().text();
  }
}

TEST_F(EpisodeTest, AResetIsTriedAgainAndThenEndsTheRun) {
  const auto healed =
      run("if mkdir used 2>/dev/null; then next; exit 1; fi\n" + std::string(kNoHook) + kTwoTurns,
          {1}, 1, 1);
  ASSERT_TRUE(healed.has_value()) << healed.error().to_string();
  EXPECT_EQ(healed->failed, 0U);
  const auto broken = run("next; echo nothing >&2; exit 1", {1}, 1, 1);
  ASSERT_FALSE(broken.has_value());
  EXPECT_NE(broken.error().text().find("failed to begin an episode 3 times"), std::string::npos)
      << broken.error().text();
  const auto wide =
      run("while next; do say '\"observation\":\"" + std::string(61, '1') + "\"'; done", {1}, 1, 1);
  EXPECT_EQ(wide.error().code(), Code::TOO_LARGE);
  const auto other = run("while next; do say \"\\\"observation\\\":\\\"$$\\\"\"; done", {1}, 2, 2);
  ASSERT_FALSE(other.has_value());
  EXPECT_NE(other.error().text().find("same seed"), std::string::npos) << other.error().text();
}

TEST_F(EpisodeTest, MessagesNeedAChat) {
  const auto batch = run(
      "while next; do say '\"messages\":[{\"role\":\"user\",\"content\":\"1\"}]'; done", {1}, 1, 1);
  ASSERT_FALSE(batch.has_value());
  EXPECT_NE(batch.error().text().find("--chat"), std::string::npos) << batch.error().text();
}

}  // namespace
}  // namespace plexrl::cli
