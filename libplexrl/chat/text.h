// SPDX-License-Identifier: Apache-2.0
// Text: a string of a chat template, UTF-8, whose bytes remember whether the template wrote them or
// somebody whose text only passes through it (a message, a tool). What is cut or joined keeps that;
// what changes length is given, when any of it was. So a special token that a message spells out
// never becomes one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace plexrl::chat {

class Text {
 public:
  Text() = default;
  Text(std::string bytes, bool given)
      : bytes_(std::move(bytes)), given_(bytes_.size(), static_cast<char>(given)) {}

  [[nodiscard]] const std::string& bytes() const { return bytes_; }
  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  [[nodiscard]] bool empty() const { return bytes_.empty(); }
  // Some byte was given.
  [[nodiscard]] bool any_given() const { return given_.find('\1') != std::string::npos; }
  [[nodiscard]] bool given_at(std::size_t at) const { return given_[at] != 0; }
  // One byte for each of bytes(), not 0 where it was given.
  [[nodiscard]] const std::string& given() const { return given_; }

  void append(const Text& other);
  [[nodiscard]] Text part(std::size_t begin, std::size_t end) const;  // bytes

  // Code points; a text that is not UTF-8 has one for each byte that begins none.
  [[nodiscard]] std::size_t characters() const;
  // The byte offset of each character, and size() behind the last.
  [[nodiscard]] std::vector<std::size_t> offsets() const;

  // As Python's str has them. `chars`: the set that is cut off; nullptr: white space.
  enum class Side { kLeft, kRight, kBoth };
  [[nodiscard]] Text stripped(Side side, const std::string* chars) const;
  // `separator` is not empty; at most `most` cuts.
  [[nodiscard]] std::vector<Text> split(std::string_view separator, std::size_t most) const;
  [[nodiscard]] std::vector<Text> split_at_space(std::size_t most) const;
  [[nodiscard]] Text replaced(std::string_view from, const Text& to, std::size_t most) const;

 private:
  std::string bytes_;
  std::string given_;  // '\1' for each byte that was given
};

// White space as Python's str.isspace has it.
[[nodiscard]] bool is_space(char32_t code_point);
// How many bytes of white space `text` begins or ends with.
[[nodiscard]] std::size_t leading_space(std::string_view text);
[[nodiscard]] std::size_t trailing_space(std::string_view text);

}  // namespace plexrl::chat
