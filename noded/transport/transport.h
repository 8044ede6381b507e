// SPDX-License-Identifier: Apache-2.0
// Transport: messages and memory between the nodes of a pool. doc/transport.md has the protocol.
// UCX in the daemon, loopback with faults on demand in tests; one conformance suite.
//
// Bulk is driven by the receiver: the holder offers memory under a number, tells the taker number
// and size by a message of its own, and the taker fetches it in chunks into its own memory.
//
// One thread calls it (the daemon's loop thread) and gets completions and events there, through
// `post`, in order, never from inside a call. The work is done by one worker thread. Nothing waits
// without end: everything has a deadline, and what is full answers BUSY.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "base/strong_id.h"

namespace plexrl::transport {

using PeerId = StrongId<struct PeerTag>;      // one connection; never used twice
using RegionId = StrongId<struct RegionTag>;  // memory that was registered
using OfferId = StrongId<struct OfferTag>;    // valid at its holder, from offer to withdraw
using FetchId = StrongId<struct FetchTag>;

inline constexpr std::size_t kMaxMessageBytes = 16U << 10;
inline constexpr std::size_t kMaxChunkBytes = std::size_t{16} << 20;
inline constexpr std::size_t kMaxCredentialBytes = 4U << 10;
inline constexpr std::size_t kMaxNameBytes = 256;  // of clusters and nodes

// Who a node is. The incarnation grows with each start of its service.
struct Identity {
  std::string cluster;
  std::string node;
  std::uint64_t incarnation = 0;
};

// Proves who this node is and checks the others; both run on the worker thread and may take
// milliseconds at most. `binding` is what a credential must vouch for: it is different each time.
class Authenticator {
 public:
  virtual ~Authenticator() = default;
  // At most kMaxCredentialBytes.
  [[nodiscard]] virtual Result<std::string> credential(std::string_view binding) = 0;
  // Ok: `credential` was made for `binding` by who may be `claimed`. Any error refuses the peer.
  [[nodiscard]] virtual Status verify(std::string_view credential, std::string_view binding,
                                      const Identity& claimed) = 0;
};

struct Options {
  Identity identity;
  // Of the pool's membership, as far as this node knows; see set_epoch.
  std::uint64_t epoch = 0;
  std::shared_ptr<Authenticator> authenticator;
  const Clock* clock = &system_clock();  // any thread
  Duration connect_timeout{5 * kSecond.ns};
  Duration keepalive{2 * kSecond.ns};              // silence after which the peer is asked
  Duration peer_timeout{10 * kSecond.ns};          // without its answer, or its word for a message
  std::size_t chunk_bytes = std::size_t{4} << 20;  // at most kMaxChunkBytes
  unsigned queued_messages = 256;                  // of one peer, not yet taken over there
  unsigned queued_fetches = 64;                    // of all peers
  unsigned peers = 256;                            // also those that only try
};

struct Events {
  // A peer has connected and is who it says. What it sends comes after that.
  std::function<void(PeerId, const Identity&)> accepted;
  // In the order of the sender's calls, each once.
  std::function<void(PeerId, std::string message)> message;
  // Of a connection that was open, once; not after close(). All its sends and fetches have ended.
  std::function<void(PeerId, const Status& why)> closed;
};

struct OfferRequest {
  std::span<const std::byte> memory;  // in one region; unchanged until it is withdrawn
  PeerId peer;                        // none: whoever is connected may fetch it
};

struct FetchRequest {
  PeerId peer;
  OfferId offer;                // as the holder said
  std::span<std::byte> memory;  // in one region; as many bytes as the offer has
  Duration timeout{60 * kSecond.ns};
  std::string label;  // "model 7: segment weights", in front of every error text
};

class Transport {
 public:
  using Done = std::function<void(const Status&)>;
  // Runs callbacks on the caller's thread, in order; callable from any thread (EventLoop::post).
  using Post = std::function<void(std::function<void()>)>;

  // Gives up what is under way and waits for its thread; nothing is called afterwards and no
  // memory of a region is touched.
  virtual ~Transport() = default;

  // Where others connect to, as `connect` takes it. IO: the address is in use or not of this host.
  [[nodiscard]] virtual Result<std::string> listen(const std::string& address) = 0;
  // Ok: the peer is who `node` says (empty: any of the cluster), and messages go both ways. AUTH:
  // one of the two did not accept the other, PERMISSION: other cluster, UNSUPPORTED: other version,
  // UNAVAILABLE: not reachable, of an old epoch or incarnation, TIMEOUT. BUSY: too many peers.
  virtual PeerId connect(const std::string& address, const std::string& node, Done done) = 0;
  // Its sends and fetches end with CANCELLED, an unfinished connect too.
  virtual void close(PeerId peer) = 0;

  // Ok: the peer's owner was given it. UNAVAILABLE: the connection ended before, or the epoch was
  // old; it may have arrived in the first case. The call itself says BUSY, TOO_LARGE or NOT_FOUND
  // and has then done nothing; `done` is not called.
  [[nodiscard]] virtual Status send(PeerId peer, std::string message, Done done) = 0;

  // Memory that offers and fetches may name. Waits for the worker (registration: about 1 ms for
  // each 4 MiB on RDMA, nothing elsewhere). Once for a whole pool, not for each use.
  [[nodiscard]] virtual Result<RegionId> add_region(std::span<std::byte> memory) = 0;
  // BUSY: an offer or a fetch uses it.
  [[nodiscard]] virtual Status remove_region(RegionId region) = 0;

  // INVALID_ARGUMENT: not inside one region.
  [[nodiscard]] virtual Result<OfferId> offer(const OfferRequest& request) = 0;
  // Nobody gets it any more; `done` (ok) when nothing reads the memory.
  virtual void withdraw(OfferId offer, Done done) = 0;

  // Ok: all bytes are there. On an error the contents of `memory` are not to be used; nothing is
  // written to it after `done`. UNAVAILABLE: the connection ended or the epoch was old. TIMEOUT,
  // CANCELLED. NOT_FOUND: no such offer, INVALID_ARGUMENT: it has another size. PROTOCOL: the peer
  // sent what was not asked for. The call itself says BUSY, INVALID_ARGUMENT or NOT_FOUND.
  [[nodiscard]] virtual Result<FetchId> fetch(const FetchRequest& request, Done done) = 0;
  // CANCELLED follows, unless the fetch ended already.
  virtual void cancel(FetchId fetch) = 0;
  // Bytes that have arrived; 0 for one that is over.
  [[nodiscard]] virtual std::uint64_t progress(FetchId fetch) const = 0;

  // Every message carries its sender's epoch. Whoever is at a later one refuses it: the sender's
  // send or fetch ends with UNAVAILABLE. Never lowers it. From its return on, nothing older is
  // accepted.
  virtual void set_epoch(std::uint64_t epoch) = 0;
  // How it works, for people: "UCX 1.13.1 (posix,tcp)".
  [[nodiscard]] virtual const std::string& method() const = 0;
};

struct UcxOptions {
  // UCX's names of transports. With RDMA: "posix,tcp,rc".
  std::string transports = "posix,tcp";
  std::string devices;  // network interfaces, "eth0"; empty: all
};
// Addresses are "host:port" in numbers, "[::1]:7000" or "127.0.0.1:0". UNSUPPORTED: built without
// UCX, or it does not start here; the text has its reason. INVALID_ARGUMENT: of `options`.
// Sets variables of the environment (UCX_...) that are not set: before other threads read it.
[[nodiscard]] Result<std::unique_ptr<Transport>> make_ucx_transport(Options options, Events events,
                                                                    Transport::Post post,
                                                                    const UcxOptions& ucx = {});

}  // namespace plexrl::transport
