// SPDX-License-Identifier: Apache-2.0
// The Carrier over UCX, for make_ucx_transport and for tests that play a peer of another kind.
#pragma once

#include "transport/carrier.h"
#include "transport/transport.h"

namespace plexrl::transport {

// UNSUPPORTED: built without UCX, or it does not start here; the text has its reason.
[[nodiscard]] Result<std::unique_ptr<Carrier>> make_ucx_carrier(const UcxOptions& options);

}  // namespace plexrl::transport
