// SPDX-License-Identifier: Apache-2.0
#include "wire/message.h"

#include <gtest/gtest.h>

#include <random>

namespace plexrl::wire {
namespace {

std::span<const std::uint8_t> bytes_of(const flatbuffers::DetachedBuffer& buffer) {
  return {buffer.data(), buffer.size()};
}

SubmitOpT generate_request() {
  GenerateArgsT args;
  args.max_new_tokens = 8;
  for (int p = 0; p < 3; ++p) {
    auto prompt = std::make_unique<PromptT>();
    prompt->tokens = {1, 2, 3, p};
    args.prompts.push_back(std::move(prompt));
  }
  SubmitOpT submit;
  submit.model = 7;
  submit.args.Set(std::move(args));
  return submit;
}

TEST(Message, RoundTripOfNestedTables) {
  const auto buffer = encode(message(12, generate_request()));
  const auto back = decode_message(bytes_of(buffer));
  ASSERT_TRUE(back.has_value()) << back.error().to_string();
  EXPECT_EQ(back->request_id, 12U);
  const SubmitOpT* submit = back->body.AsSubmitOp();
  ASSERT_NE(submit, nullptr);
  const GenerateArgsT* args = submit->args.AsGenerateArgs();
  ASSERT_NE(args, nullptr);
  ASSERT_EQ(args->prompts.size(), 3U);
  EXPECT_EQ(args->prompts[2]->tokens, (std::vector<std::int32_t>{1, 2, 3, 2}));
  EXPECT_FLOAT_EQ(args->top_p, 1.0F);
}

TEST(Message, EngineRoundTrip) {
  EngineResumeT resume;
  resume.model = 3;
  resume.segments.push_back(std::make_unique<SegmentPlaceT>());
  resume.segments[0]->device = {5, 6, 7};
  const auto buffer = encode(engine_message(1, std::move(resume)));
  const auto back = decode_engine_message(bytes_of(buffer));
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->body.AsEngineResume()->segments[0]->device,
            (std::vector<std::uint32_t>{5, 6, 7}));
}

TEST(Message, TheTwoProtocolsAreNotMixedUp) {
  const auto client = encode(message(1, DoneT{}));
  const auto engine = encode(engine_message(1, EngineDoneT{}));
  EXPECT_EQ(decode_engine_message(bytes_of(client)).error().code(), Code::PROTOCOL);
  EXPECT_EQ(decode_message(bytes_of(engine)).error().code(), Code::PROTOCOL);
}

TEST(Message, EveryTruncationIsRefused) {
  const auto buffer = encode(message(12, generate_request()));
  for (std::size_t size = 0; size < buffer.size(); ++size) {
    const std::vector<std::uint8_t> cut(buffer.data(), buffer.data() + size);
    const auto result = decode_message(cut);
    EXPECT_EQ(result.error().code(), Code::PROTOCOL) << size;
  }
}

TEST(Message, RandomDamageNeverCrashes) {
  const auto buffer = encode(message(12, generate_request()));
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::uint8_t> bytes(buffer.data(), buffer.data() + buffer.size());
    for (int i = 0; i < 3; ++i)
      bytes[random() % bytes.size()] = static_cast<std::uint8_t>(random());
    refused += !decode_message(bytes).has_value();
  }
  EXPECT_GT(refused, 1000);
}

// Builds a generate request of `rows` prompts that are all the same table.
flatbuffers::DetachedBuffer amplified(std::size_t rows, std::size_t tokens) {
  flatbuffers::FlatBufferBuilder builder;
  const std::vector<std::int32_t> data(tokens, 5);
  const auto prompt = CreatePrompt(builder, builder.CreateVector(data));
  const std::vector<flatbuffers::Offset<Prompt>> prompts(rows, prompt);
  const auto args = CreateGenerateArgs(builder, 0, builder.CreateVector(prompts));
  const auto submit = CreateSubmitOp(builder, 1, 0, 1, 1, OpArgs::GenerateArgs, args.Union());
  builder.Finish(CreateMessage(builder, 1, Body::SubmitOp, submit.Union()), MessageIdentifier());
  return builder.Release();
}

TEST(Message, SharedTablesThatWouldUnpackToMuchMoreAreRefused) {
  EXPECT_TRUE(decode_message(bytes_of(amplified(1, 1000))).has_value());
  const auto result = decode_message(bytes_of(amplified(10'000, 100'000)));  // 4 GB unpacked
  EXPECT_EQ(result.error().text(), "message: parts of it are referenced more than once");
}

TEST(Message, MoreTablesThanTheLimitAreRefused) {
  EXPECT_FALSE(decode_message(bytes_of(amplified(kMaxMessageTables + 1, 1))).has_value());
}

TEST(Message, UnionWithATypeAndNoValueIsRefused) {
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(CreateMessage(builder, 1, Body::Hello, 0), MessageIdentifier());
  EXPECT_EQ(decode_message({builder.GetBufferPointer(), builder.GetSize()}).error().code(),
            Code::PROTOCOL);
}

TEST(Message, NestedUnionWithATypeAndNoValueIsRefused) {
  flatbuffers::FlatBufferBuilder builder;
  const auto submit = CreateSubmitOp(builder, 1, 0, 1, 1, OpArgs::GenerateArgs, 0);
  builder.Finish(CreateMessage(builder, 1, Body::SubmitOp, submit.Union()), MessageIdentifier());
  EXPECT_EQ(decode_message({builder.GetBufferPointer(), builder.GetSize()}).error().code(),
            Code::PROTOCOL);
}

TEST(Message, AMemberOfALaterVersionUnpacksToNothing) {
  flatbuffers::FlatBufferBuilder builder;
  const auto done = CreateDone(builder);
  builder.Finish(CreateMessage(builder, 9, static_cast<Body>(200), done.Union()),
                 MessageIdentifier());
  const auto result = decode_message({builder.GetBufferPointer(), builder.GetSize()});
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->request_id, 9U);  // so that it can be answered UNSUPPORTED
  EXPECT_EQ(result->body.value, nullptr);
  EXPECT_EQ(result->body.AsHello(), nullptr);
}

TEST(Failure, RoundTripKeepsCodeTextAndRetry) {
  const FailureT failure = to_failure(error(Code::BUSY, "queue full"), 250);
  EXPECT_EQ(failure.retry_after_ms, 250U);
  EXPECT_EQ(from_failure(failure), error(Code::BUSY, "queue full"));
}

TEST(Failure, FromAHostilePeer) {
  FailureT failure;
  failure.code = 0;
  EXPECT_EQ(from_failure(failure).code(), Code::PROTOCOL);
  failure.code = 9999;
  failure.text.assign(100'000, 'x');
  EXPECT_EQ(from_failure(failure).code(), Code::INTERNAL);
  EXPECT_EQ(from_failure(failure).text().size(), kMaxFailureText);
}

}  // namespace
}  // namespace plexrl::wire
