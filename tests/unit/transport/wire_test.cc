// SPDX-License-Identifier: Apache-2.0
#include "transport/wire.h"

#include <gtest/gtest.h>

namespace plexrl::transport {
namespace {

Hello some_hello() { return {{"lab", "gpu1", 7}, 5, 0x1122334455667788, "where", "proof"}; }

TEST(TransportWire, FramesComeBackAsTheyWere) {
  Greeting greeting;
  greeting.nonce[3] = 200;
  const auto back = decode_frame(encode(greeting));
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(std::get<Greeting>(*back).nonce, greeting.nonce);
  const auto hello = decode_frame(encode(some_hello()));
  ASSERT_TRUE(hello.has_value());
  const auto& it = std::get<Hello>(*hello);
  EXPECT_EQ(it.identity.cluster + it.identity.node + it.address + it.credential,
            "labgpu1whereproof");
  EXPECT_EQ(it.identity.incarnation, 7u);
  EXPECT_EQ(it.epoch, 5u);
  EXPECT_EQ(it.key, 0x1122334455667788u);
  const auto refusal = decode_frame(encode(Refusal{Code::AUTH, "no\n"}));
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(std::get<Refusal>(*refusal).code, Code::AUTH);
  EXPECT_EQ(std::get<Refusal>(*refusal).text, "no?") << "fit for a log";
}

TEST(TransportWire, EveryTruncationAndEveryExcessIsRefused) {
  for (const std::string& whole :
       {encode(Greeting{}), encode(some_hello()), encode(Refusal{Code::AUTH, "no"})}) {
    for (std::size_t size = 0; size < whole.size(); ++size)
      EXPECT_FALSE(decode_frame(whole.substr(0, size)).has_value()) << size;
    EXPECT_EQ(decode_frame(whole + "x").error().code(), Code::PROTOCOL);
  }
}

TEST(TransportWire, LengthsOfAPeerAreBounded) {
  Hello hello = some_hello();
  hello.credential.assign(kMaxCredentialBytes + 1, 'x');
  EXPECT_FALSE(decode_frame(encode(hello)).has_value());
  hello = some_hello();
  hello.identity.node = "two\nlines";
  EXPECT_FALSE(decode_frame(encode(hello)).has_value());
  std::string lie = encode(some_hello());
  lie[4] = lie[5] = lie[6] = lie[7] = '\xff';  // the length of the cluster's name
  EXPECT_FALSE(decode_frame(lie).has_value());
}

TEST(TransportWire, AnotherVersionIsUnsupportedWhateverFollows) {
  const std::string later = encode(Greeting{.version = 2, .nonce = {}}) + "more";
  const auto decoded = decode_frame(later);
  EXPECT_EQ(decoded.error().code(), Code::UNSUPPORTED);
  EXPECT_NE(decoded.error().text().find("protocol 2, this node 1"), std::string::npos);
}

TEST(TransportWire, ABindingIsOfOneSideOneMomentAndAllClaims) {
  const Nonce a{1};
  const Nonce b{2};
  const std::string binding = binding_of(some_hello(), true, a, b);
  EXPECT_NE(binding, binding_of(some_hello(), false, a, b));
  EXPECT_NE(binding, binding_of(some_hello(), true, b, a));
  Hello hello = some_hello();
  hello.epoch = 6;
  EXPECT_NE(binding, binding_of(hello, true, a, b));
  hello = some_hello();
  hello.credential = "another";
  EXPECT_EQ(binding, binding_of(hello, true, a, b));
}

TEST(TransportWire, HeadersComeBackAndNothingElseDoes) {
  const Header header{MessageType::kGet, -3, 1, 2, 3, 4, 5, 6, 0xffffffffffffffff};
  const std::string bytes = encode(header);
  const auto back = decode_header(bytes);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->type, MessageType::kGet);
  EXPECT_EQ(back->code, -3);
  EXPECT_EQ(back->total, 5u);
  EXPECT_EQ(back->bytes, 0xffffffffffffffffu);
  EXPECT_FALSE(decode_header(bytes.substr(1)).has_value());
  EXPECT_FALSE(decode_header(bytes + "x").has_value());
  EXPECT_FALSE(decode_header({}).has_value());
  std::string unknown = bytes;
  unknown[0] = 7;
  EXPECT_FALSE(decode_header(unknown).has_value());
}

}  // namespace
}  // namespace plexrl::transport
