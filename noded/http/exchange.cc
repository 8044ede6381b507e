// SPDX-License-Identifier: Apache-2.0
#include "http/exchange.h"

#include <utility>

namespace plexrl::http {

void Exchange::answer(Response response) {
  if (std::exchange(is_answered_, true)) return;
  response_ = std::move(response);
  answered_();
}

}  // namespace plexrl::http
