// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/utf8.h"

namespace plexrl::tokenizer {
namespace {

struct Lead {
  std::size_t bytes = 0;                    // of the whole character; 0: no character begins so
  unsigned char least = 0x80, most = 0xBF;  // of the second byte
};

Lead lead_of(unsigned char first) noexcept {
  if (first < 0x80) return {1};
  if (first < 0xC2) return {};
  if (first < 0xE0) return {2};
  if (first == 0xE0) return {3, 0xA0, 0xBF};
  if (first == 0xED) return {3, 0x80, 0x9F};  // no surrogates
  if (first < 0xF0) return {3};
  if (first == 0xF0) return {4, 0x90, 0xBF};
  if (first == 0xF4) return {4, 0x80, 0x8F};  // to U+10FFFF
  return first < 0xF4 ? Lead{4} : Lead{};
}

}  // namespace

Utf8Step utf8_step(std::string_view text) noexcept {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const Lead lead = lead_of(at(0));
  if (lead.bytes == 0) return {Utf8::kInvalid, 1, 0};
  if (lead.bytes == 1) return {Utf8::kCharacter, 1, at(0)};
  char32_t code_point = at(0) & (0x7FU >> lead.bytes);
  for (std::size_t i = 1; i < lead.bytes; ++i) {
    if (i == text.size()) return {Utf8::kCutOff, i, 0};
    const unsigned char least = i == 1 ? lead.least : 0x80;
    const unsigned char most = i == 1 ? lead.most : 0xBF;
    if (at(i) < least || at(i) > most) return {Utf8::kInvalid, i, 0};
    code_point = (code_point << 6U) | (at(i) & 0x3FU);
  }
  return {Utf8::kCharacter, lead.bytes, code_point};
}

std::size_t find_invalid_utf8(std::string_view text) noexcept {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text.substr(at));
    if (step.kind != Utf8::kCharacter) return at;
    at += step.bytes;
  }
  return std::string_view::npos;
}

std::string replace_invalid_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const Utf8Step step = utf8_step(bytes);
    text += step.kind == Utf8::kCharacter ? bytes.substr(0, step.bytes) : kReplacement;
    bytes.remove_prefix(step.bytes);
  }
  return text;
}

void append_utf8(std::string* out, char32_t code_point) {
  const auto put = [&](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) return put(code_point);
  if (code_point < 0x800) {
    put(0xC0U | (code_point >> 6U));
  } else if (code_point < 0x10000) {
    put(0xE0U | (code_point >> 12U));
    put(0x80U | ((code_point >> 6U) & 0x3FU));
  } else {
    put(0xF0U | (code_point >> 18U));
    put(0x80U | ((code_point >> 12U) & 0x3FU));
    put(0x80U | ((code_point >> 6U) & 0x3FU));
  }
  put(0x80U | (code_point & 0x3FU));
}

}  // namespace plexrl::tokenizer
