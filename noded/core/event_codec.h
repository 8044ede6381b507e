// SPDX-License-Identifier: Apache-2.0
// Events and actions as bytes; part of the journal. The number of an event is its place in the
// variant: new kinds go to the end.
#pragma once

#include "core/byte_codec.h"
#include "core/types.h"

namespace plexrl::core {

void encode_event(ByteWriter& out, const Event& event);
// Fails the reader for anything that encode_event would not write.
[[nodiscard]] Event decode_event(ByteReader& in);
void encode_actions(ByteWriter& out, const Actions& actions);

}  // namespace plexrl::core
