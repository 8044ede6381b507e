// SPDX-License-Identifier: Apache-2.0
// The Transport over a Carrier: a Worker on its own thread, and the caller's side of it.
#pragma once

#include "transport/carrier.h"
#include "transport/transport.h"

namespace plexrl::transport {

// INVALID_ARGUMENT: what is wrong with `options`.
[[nodiscard]] Result<std::unique_ptr<Transport>> make_threaded_transport(
    std::unique_ptr<Carrier> carrier, Options options, Events events, Transport::Post post);

}  // namespace plexrl::transport
