// SPDX-License-Identifier: Apache-2.0
// The protobuf messages of the Tinker API against bytes that Google's library made of the SDK's
// descriptors (tinker 0.38.0, protobuf 7.36.2).
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "http/proto_wire.h"
#include "http/tinker_tensor.h"
#include "http/tinker_train.h"

namespace plexrl::http {
namespace {

std::string bytes_of(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  return bytes;
}

// ppo over three positions in two chunks, seq_id 300, clip_low_threshold 0.5 in both maps.
const std::string kPpo = bytes_of(
    "0a016d10ac021a8e010a0c0a0a0a0801000000020000000a080a060a040300000012210a0a616476616e74616765"
    "7312130a0c000000000000803f000080bf1801220103121f0a086c6f6770726f627312130a0c000080bf000000bf"
    "000000c0180122010312300a0d7461726765745f746f6b656e73121f0a1802000000000000000300000000000000"
    "04000000000000001802220103220370706f2a1d0a12636c69705f6c6f775f7468726573686f6c64110000000000"
    "00e03f3a1f0a12636c69705f6c6f775f7468726573686f6c64120909000000000000e03f");
// cross_entropy, forward only, target_tokens as CSR of shape [1, 5] with one value, no weights.
const std::string kSparse = bytes_of(
    "0a016d10011a5b0a180a160a140100000002000000030000000400000005000000123f0a0d7461726765745f746f"
    "6b656e73122e12260a0807000000000000001210000000000000000001000000000000001a080300000000000000"
    "180222020105220d63726f73735f656e74726f70793001");
// loss_fn_output_type and two rows of logprobs, -1 and -2, -3.
const std::string kOutput = bytes_of(
    "0a0b41727261795265636f726412470a0b41727261795265636f726412360a086c6f6770726f6273122a0a0c0000"
    "80bf000000c0000040c01218000000000000000004000000000000000c0000000000000018011802");

TrainRequest parsed(const std::string& message) {
  std::string field;
  auto request = parse_forward_backward(message, &field);
  EXPECT_TRUE(request) << request.error().to_string();
  return request ? *std::move(request) : TrainRequest();
}

Status refusal_of(const std::string& message) { return parsed(message).refusal; }

TEST(TinkerMessageTest, AForwardBackwardIsRead) {
  const TrainRequest request = parsed(kPpo);
  EXPECT_TRUE(request.refusal.ok()) << request.refusal.to_string();
  EXPECT_EQ(request.model_id, "m");
  EXPECT_EQ(request.seq, 300U);
  const auto* args = request.args.AsForwardBackwardArgs();
  ASSERT_NE(args, nullptr);
  EXPECT_EQ(args->loss, wire::LossKind::Ppo);
  EXPECT_EQ(args->clip_low, 0.5F);
  EXPECT_EQ(args->clip_high, 1.2F);
  EXPECT_FALSE(args->forward_only);
  ASSERT_EQ(args->data.size(), 1U);
  EXPECT_EQ(args->data[0]->tokens, (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(args->data[0]->target_tokens, (std::vector<std::int32_t>{2, 3, 4}));
  EXPECT_EQ(args->data[0]->logprobs, (std::vector<float>{-1, -0.5F, -2}));
  EXPECT_EQ(args->data[0]->advantages, (std::vector<float>{0, 1, -1}));
}

TEST(TinkerMessageTest, SparseTensorsBecomeDense) {
  const TrainRequest request = parsed(kSparse);
  EXPECT_TRUE(request.refusal.ok()) << request.refusal.to_string();
  const auto* args = request.args.AsForwardBackwardArgs();
  ASSERT_NE(args, nullptr);
  EXPECT_TRUE(args->forward_only);
  EXPECT_EQ(args->data.at(0)->target_tokens, (std::vector<std::int32_t>{0, 0, 0, 7, 0}));
  EXPECT_EQ(args->data.at(0)->weights, (std::vector<float>{1, 1, 1, 1, 1}));
}

TEST(TinkerMessageTest, TheResultIsWrittenAsTheClientReadsIt) {
  wire::ForwardBackwardResultT result;
  result.loss_sum = -2.5;
  for (const auto& values : {std::vector<float>{-1}, std::vector<float>{-2, -3}}) {
    result.logprobs.push_back(std::make_unique<wire::FloatRowT>());
    result.logprobs.back()->values = values;
  }
  const std::string message = forward_backward_message(result);
  ASSERT_TRUE(message.starts_with(kOutput));
  ProtoReader fields(std::string_view(message).substr(kOutput.size()));
  std::map<std::string, double> metrics;
  while (fields.next()) {
    EXPECT_EQ(fields.number(), 3U);
    ProtoReader metric(fields.bytes());
    ASSERT_TRUE(metric.next());
    const std::string name(metric.bytes());
    EXPECT_EQ(std::count(name.begin(), name.end(), ':'), 1) << name;
    ASSERT_TRUE(metric.next());
    metrics[name] = metric.as_double();
  }
  EXPECT_FALSE(fields.broken());
  EXPECT_EQ(metrics.at("loss:sum"), -2.5);
}

TEST(TinkerMessageTest, TheDefaultsOfLossesArePublished) {
  const auto clips = [](const char* loss) {
    std::string message = kPpo.substr(0, kPpo.find("\x22\x03ppo"));
    ProtoWriter name;
    name.bytes(4, loss);
    const TrainRequest request = parsed(message + name.message());
    EXPECT_TRUE(request.refusal.ok()) << request.refusal.to_string();
    const auto* args = request.args.AsForwardBackwardArgs();
    return std::vector<float>{args->clip_low, args->clip_high, args->beta};
  };
  EXPECT_EQ(clips("ppo"), (std::vector<float>{0.8F, 1.2F, 0.01F}));
  EXPECT_EQ(clips("cispo"), (std::vector<float>{0, 4, 0.01F}));
  EXPECT_EQ(clips("dro")[2], 0.01F);
}

TEST(TinkerMessageTest, WhatIsWrongUsesItsNumberUpAndIsNamed) {
  ProtoWriter head;
  head.bytes(1, "m");
  head.varint(2, 4);
  ProtoWriter loss;
  loss.bytes(4, "dppo");
  EXPECT_NE(refusal_of(head.message() + loss.message()).text().find("'dppo'"), std::string::npos);
  ProtoWriter setting;
  setting.bytes(1, "beta");
  setting.fixed(2, 0.5);
  ProtoWriter config;
  config.bytes(5, setting.message());
  EXPECT_NE(refusal_of(kPpo + config.message()).text().find("'beta'"), std::string::npos);
  ProtoWriter image;
  image.bytes(2, "png");
  ProtoWriter chunk;
  chunk.bytes(1, image.message());
  ProtoWriter datum;
  datum.bytes(3, chunk.message());
  const Status refusal = refusal_of(kPpo + datum.message());
  EXPECT_EQ(refusal.code(), Code::UNSUPPORTED);
  EXPECT_NE(refusal.text().find("datum 1"), std::string::npos) << refusal.text();
  // Cut anywhere, it is refused or has lost whole fields; it never does anything else.
  for (std::size_t length = 0; length < kPpo.size(); ++length) {
    std::string field;
    const auto cut = parse_forward_backward(kPpo.substr(0, length), &field);
    EXPECT_TRUE(cut.has_value() || !field.empty());
  }
  EXPECT_FALSE(refusal_of(kPpo.substr(0, kPpo.size() - 3)).ok());
}

TEST(TinkerMessageTest, SparseTensorsThatDoNotFitAreRefused) {
  const auto refused = [](const char* tensor) {
    auto read = read_tensor(Json::parse(tensor));
    EXPECT_TRUE(read) << tensor;
    TinkerDatum datum;
    datum.tokens = {1};
    if (read) datum.inputs["target_tokens"] = *std::move(read);
    return !make_datum(wire::LossKind::CrossEntropy, std::move(datum)).has_value();
  };
  EXPECT_FALSE(refused(R"({"data":[1],"dtype":"int64","shape":[1,3],"sparse_crow_indices":[0,1],
                           "sparse_col_indices":[2]})"));
  EXPECT_TRUE(refused(R"({"data":[1],"dtype":"int64","shape":[1,3],"sparse_crow_indices":[0,1],
                           "sparse_col_indices":[3]})"));
  EXPECT_TRUE(refused(R"({"data":[1],"dtype":"int64","shape":[1,3],"sparse_crow_indices":[0,2],
                           "sparse_col_indices":[2]})"));
  EXPECT_TRUE(refused(R"({"data":[1],"dtype":"int64","shape":[4000000,4000000],
                           "sparse_crow_indices":[0,1],"sparse_col_indices":[2]})"));
  EXPECT_TRUE(refused(R"({"data":[1],"dtype":"int64","shape":[1,3]})"));
  EXPECT_TRUE(refused(R"({"data":[1,2,3,4],"dtype":"int64","shape":[2,2]})"));
}

}  // namespace
}  // namespace plexrl::http
