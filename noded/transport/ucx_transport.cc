// SPDX-License-Identifier: Apache-2.0
#include "transport/threaded_transport.h"
#include "transport/ucx_carrier.h"

namespace plexrl::transport {

Result<std::unique_ptr<Transport>> make_ucx_transport(Options options, Events events,
                                                      Transport::Post post, const UcxOptions& ucx) {
  PLEXRL_ASSIGN(std::unique_ptr<Carrier> carrier, make_ucx_carrier(ucx));
  return make_threaded_transport(std::move(carrier), std::move(options), std::move(events),
                                 std::move(post));
}

}  // namespace plexrl::transport
