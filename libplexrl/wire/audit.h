// SPDX-License-Identifier: Apache-2.0
// Audit of a verified FlatBuffer before it is unpacked.
//
// The verifier proves that every offset stays inside the buffer, but lets many offsets point at one
// place: a frame of 1 MiB may then unpack to terabytes. The audit walks the tables with their type
// information and adds up what unpacking would copy; an honest buffer holds every vector, string
// and table once, so the sum cannot be larger than the buffer. It also refuses a union that names a
// known type and has no value, which the object API would hand out as a null pointer.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "flatbuffers/flatbuffers.h"

namespace plexrl::wire {

// The buffer must have passed the verifier for the root type of `type`. PROTOCOL on failure.
[[nodiscard]] Status audit_buffer(std::span<const std::uint8_t> buffer,
                                  const flatbuffers::TypeTable& type);

}  // namespace plexrl::wire
