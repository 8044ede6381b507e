// SPDX-License-Identifier: Apache-2.0
// In place of ucx_carrier.cc where UCX was not found.
#include "transport/ucx_carrier.h"

namespace plexrl::transport {

Result<std::unique_ptr<Carrier>> make_ucx_carrier(const UcxOptions&) {
  return error(Code::UNSUPPORTED, "this build has no UCX: install libucx-dev and configure again");
}

}  // namespace plexrl::transport
