// SPDX-License-Identifier: Apache-2.0
#include "transport/handshake.h"

#include <cinttypes>

namespace plexrl::transport {

Result<std::string> Handshake::own_hello() {
  Hello hello{setup_.identity, setup_.epoch, setup_.key, {}, {}};
  PLEXRL_ASSIGN(hello.address, setup_.address());
  const std::string binding = binding_of(hello, setup_.initiator, *their_nonce_, setup_.nonce);
  PLEXRL_ASSIGN(hello.credential, setup_.authenticator->credential(binding));
  if (hello.credential.size() > kMaxCredentialBytes || hello.address.size() > kMaxAddressBytes)
    return error(Code::INTERNAL, "a credential or an address of this node is too long");
  return encode(hello);
}

Status Handshake::check(const Hello& hello) {
  const Identity& who = hello.identity;
  if (who.cluster != setup_.identity.cluster)
    return error(Code::PERMISSION, "node %s is of cluster %s, this one of %s", who.node.c_str(),
                 who.cluster.c_str(), setup_.identity.cluster.c_str());
  if (!setup_.expected_node.empty() && who.node != setup_.expected_node)
    return error(Code::AUTH, "node %s is there, not %s", who.node.c_str(),
                 setup_.expected_node.c_str());
  const std::string binding = binding_of(hello, !setup_.initiator, setup_.nonce, *their_nonce_);
  const Status verified = setup_.authenticator->verify(hello.credential, binding, who);
  if (!verified.ok())
    return error(Code::AUTH, "the credential of node %s: %s", who.node.c_str(),
                 verified.text().c_str());
  return setup_.admit(hello);
}

Result<std::optional<std::string>> Handshake::take(std::string_view bytes) {
  PLEXRL_ASSIGN(Frame frame, decode_frame(bytes));
  if (const auto* refusal = std::get_if<Refusal>(&frame)) {
    refused_ = true;
    return error(refusal->code, "refused by the peer: %s", refusal->text.c_str());
  }
  if (const auto* greeting = std::get_if<Greeting>(&frame)) {
    if (their_nonce_) return error(Code::PROTOCOL, "a second greeting");
    their_nonce_ = greeting->nonce;
    if (!setup_.initiator) return std::optional<std::string>();
    PLEXRL_ASSIGN(std::string hello, own_hello());
    return std::optional(std::move(hello));
  }
  if (!their_nonce_ || complete_) return error(Code::PROTOCOL, "a hello out of turn");
  auto& hello = std::get<Hello>(frame);
  PLEXRL_TRY(check(hello));
  peer_ = std::move(hello);
  std::optional<std::string> answer;
  if (!setup_.initiator) {
    PLEXRL_ASSIGN(answer, own_hello());
  }
  complete_ = true;
  return answer;
}

}  // namespace plexrl::transport
