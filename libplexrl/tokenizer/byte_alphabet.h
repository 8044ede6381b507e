// SPDX-License-Identifier: Apache-2.0
// The alphabet in which byte-level vocabularies write bytes: printable characters of Latin-1 stand
// for themselves, the other bytes in their order for U+0100 and on (Radford et al., 2019).
#pragma once

#include <string>
#include <string_view>

namespace plexrl::tokenizer {

// False, and `bytes` is not defined, when a character is not of the alphabet.
[[nodiscard]] bool from_byte_alphabet(std::string_view token, std::string* bytes);
[[nodiscard]] std::string to_byte_alphabet(std::string_view bytes);

}  // namespace plexrl::tokenizer
