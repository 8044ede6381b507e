// SPDX-License-Identifier: Apache-2.0
// Handshake: who is at the other end. Both sides greet with a version and a nonce; the one that
// connected says who it is with a credential for the other's nonce; when that is accepted, the
// other does the same. Worker thread; no I/O but the authenticator's.
#pragma once

#include "transport/wire.h"

namespace plexrl::transport {

class Handshake {
 public:
  // This side, from the settings and the moment.
  struct Setup {
    Identity identity;
    std::uint64_t epoch = 0;
    std::uint64_t key = 0;
    Nonce nonce{};
    bool initiator = false;
    std::string expected_node;  // empty: any
    Authenticator* authenticator = nullptr;
    std::function<Result<std::string>()> address;  // Carrier::local_address
    // Of a peer whose credential was accepted: what else speaks against it.
    std::function<Status(const Hello&)> admit;
  };
  explicit Handshake(Setup setup) : setup_(std::move(setup)) {}

  [[nodiscard]] std::string greeting() const { return encode(Greeting{.nonce = setup_.nonce}); }
  // A frame to answer with, maybe none. An error ends it: tell the peer, unless refused().
  [[nodiscard]] Result<std::optional<std::string>> take(std::string_view frame);
  [[nodiscard]] bool complete() const { return complete_; }
  [[nodiscard]] bool refused() const { return refused_; }  // by the peer
  [[nodiscard]] const Hello& peer() const { return peer_; }
  [[nodiscard]] std::uint64_t key() const { return setup_.key; }

 private:
  [[nodiscard]] Result<std::string> own_hello();
  [[nodiscard]] Status check(const Hello& hello);

  Setup setup_;
  std::optional<Nonce> their_nonce_;
  Hello peer_;
  bool complete_ = false;
  bool refused_ = false;
};

}  // namespace plexrl::transport
