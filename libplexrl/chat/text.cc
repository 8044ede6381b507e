// SPDX-License-Identifier: Apache-2.0
#include "chat/text.h"

#include <algorithm>

#include "tokenizer/utf8.h"

namespace plexrl::chat {
namespace {

// The offset of the last character of `text`, which is not empty.
std::size_t last_character(std::string_view text) {
  std::size_t at = text.size() - 1;
  const std::size_t least = text.size() > 4 ? text.size() - 4 : 0;
  while (at > least && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  const tokenizer::Utf8Step step = tokenizer::utf8_step(text.substr(at));
  return at + step.bytes == text.size() ? at : text.size() - 1;
}

bool cut_off(std::string_view character, const std::string* chars) {
  if (chars != nullptr) return chars->find(character) != std::string::npos;
  const tokenizer::Utf8Step step = tokenizer::utf8_step(character);
  return step.kind == tokenizer::Utf8::kCharacter && is_space(step.code_point);
}

std::size_t leading(std::string_view text, const std::string* chars) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t bytes = tokenizer::utf8_step(text.substr(at)).bytes;
    if (!cut_off(text.substr(at, bytes), chars)) break;
    at += bytes;
  }
  return at;
}

std::size_t trailing(std::string_view text, const std::string* chars) {
  const std::size_t all = text.size();
  while (!text.empty()) {
    const std::size_t last = last_character(text);
    if (!cut_off(text.substr(last), chars)) break;
    text = text.substr(0, last);
  }
  return all - text.size();
}

}  // namespace

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

std::size_t leading_space(std::string_view text) { return leading(text, nullptr); }
std::size_t trailing_space(std::string_view text) { return trailing(text, nullptr); }

void Text::append(const Text& other) {
  bytes_ += other.bytes_;
  given_ += other.given_;
}

Text Text::part(std::size_t begin, std::size_t end) const {
  Text out;
  out.bytes_ = bytes_.substr(begin, end - begin);
  out.given_ = given_.substr(begin, end - begin);
  return out;
}

std::vector<std::size_t> Text::offsets() const {
  std::vector<std::size_t> all;
  const std::string_view text(bytes_);
  for (std::size_t at = 0; at < text.size(); at += tokenizer::utf8_step(text.substr(at)).bytes)
    all.push_back(at);
  all.push_back(text.size());
  return all;
}

std::size_t Text::characters() const { return offsets().size() - 1; }

Text Text::stripped(Side side, const std::string* chars) const {
  const std::size_t begin = side == Side::kRight ? 0 : leading(bytes_, chars);
  const std::string_view rest = std::string_view(bytes_).substr(begin);
  const std::size_t tail = side == Side::kLeft ? 0 : trailing(rest, chars);
  return part(begin, bytes_.size() - tail);
}

std::vector<Text> Text::split(std::string_view separator, std::size_t most) const {
  std::vector<Text> pieces;
  std::size_t begin = 0;
  while (pieces.size() < most) {
    const std::size_t at = bytes_.find(separator, begin);
    if (at == std::string::npos) break;
    pieces.push_back(part(begin, at));
    begin = at + separator.size();
  }
  pieces.push_back(part(begin, bytes_.size()));
  return pieces;
}

std::vector<Text> Text::split_at_space(std::size_t most) const {
  const std::string_view text(bytes_);
  std::vector<Text> pieces;
  std::size_t at = leading_space(text);
  while (at < text.size() && pieces.size() < most) {
    std::size_t end = at;
    while (end < text.size() && leading_space(text.substr(end)) == 0)
      end += tokenizer::utf8_step(text.substr(end)).bytes;
    pieces.push_back(part(at, end));
    at = end + leading_space(text.substr(end));
  }
  if (at < text.size()) pieces.push_back(part(at, text.size()).stripped(Side::kRight, nullptr));
  return pieces;
}

Text Text::replaced(std::string_view from, const Text& to, std::size_t most) const {
  Text out;
  std::size_t begin = 0;
  for (std::size_t done = 0; done < most && !from.empty(); ++done) {
    const std::size_t at = bytes_.find(from, begin);
    if (at == std::string::npos) break;
    out.append(part(begin, at));
    out.append(to);
    begin = at + from.size();
  }
  out.append(part(begin, bytes_.size()));
  return out;
}

}  // namespace plexrl::chat
