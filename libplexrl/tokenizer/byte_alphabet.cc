// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/byte_alphabet.h"

#include <array>
#include <unordered_map>

#include "tokenizer/utf8.h"

namespace plexrl::tokenizer {
namespace {

std::array<char32_t, 256> make_characters() {
  std::array<char32_t, 256> characters{};
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < characters.size(); ++byte) {
    const bool itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    characters.at(byte) = itself ? byte : next++;
  }
  return characters;
}

const std::array<char32_t, 256>& characters() {
  static const auto all = make_characters();
  return all;
}

const std::unordered_map<char32_t, char>& bytes_of_characters() {
  static const auto all = [] {
    std::unordered_map<char32_t, char> bytes;
    for (std::size_t byte = 0; byte < characters().size(); ++byte)
      bytes[characters().at(byte)] = static_cast<char>(byte);
    return bytes;
  }();
  return all;
}

}  // namespace

bool from_byte_alphabet(std::string_view token, std::string* bytes) {
  bytes->clear();
  while (!token.empty()) {
    const Utf8Step step = utf8_step(token);
    const auto found = bytes_of_characters().find(step.code_point);
    if (step.kind != Utf8::kCharacter || found == bytes_of_characters().end()) return false;
    bytes->push_back(found->second);
    token.remove_prefix(step.bytes);
  }
  return true;
}

std::string to_byte_alphabet(std::string_view bytes) {
  std::string token;
  for (const char byte : bytes)
    append_utf8(&token, characters().at(static_cast<unsigned char>(byte)));
  return token;
}

}  // namespace plexrl::tokenizer
