// SPDX-License-Identifier: Apache-2.0
#include "chat/lexer.h"

#include <algorithm>
#include <array>

#include "chat/text.h"
#include "tokenizer/utf8.h"

namespace plexrl::chat {
namespace {

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c >= '0' && c <= '9');
}
// Each look-up compares them, at the price of one step.
constexpr std::size_t kMaxName = 100;
bool is_digit(char c) { return c >= '0' && c <= '9'; }

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// One line break for each, and none at the very end, as Jinja reads a source.
std::string normalised(std::string_view source) {
  std::string out;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) {
      PLEXRL_TRY(text());
      if (at_ < source_.size()) PLEXRL_TRY(tag());
    }
    add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void advance(std::size_t bytes) {
    const auto from = source_.begin() + static_cast<std::ptrdiff_t>(at_);
    line_ +=
        static_cast<std::size_t>(std::count(from, from + static_cast<std::ptrdiff_t>(bytes), '\n'));
    at_ += bytes;
  }
  [[nodiscard]] std::string_view rest() const { return std::string_view(source_).substr(at_); }

  // What is outside of tags, up to the next one, without the white space that the tag takes.
  Status text() {
    std::size_t end = at_;
    const auto begins = [&](std::size_t at) {
      const std::string_view two = std::string_view(source_).substr(at, 2);
      return two == "{%" || two == "{{" || two == "{#";
    };
    while (end < source_.size() && !begins(end)) ++end;
    const std::string_view all = std::string_view(source_).substr(at_, end - at_);
    std::size_t kept = all.size();
    if (end < source_.size()) {
      const char sign = end + 2 < source_.size() ? source_[end + 2] : ' ';
      if (sign == '-')
        kept -= trailing_space(all);
      else if (sign != '+' && source_[end + 1] != '{')
        kept = without_indent(all);
    }
    if (kept > 0) add(TokenKind::kText, std::string(all.substr(0, kept)));
    advance(end - at_);
    return {};
  }

  // Without white space between the last line break and the tag, when there is nothing else.
  [[nodiscard]] std::size_t without_indent(std::string_view all) const {
    const std::size_t newline = all.rfind('\n');
    const bool line_begins = at_ == 0 || source_[at_ - 1] == '\n';
    if (newline == std::string_view::npos && !line_begins) return all.size();
    const std::size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
    return trailing_space(all.substr(begin)) == all.size() - begin ? begin : all.size();
  }

  Status tag() {
    const char kind = source_[at_ + 1];
    const std::size_t line = line_;
    advance(2);
    if (at_ < source_.size() && (source_[at_] == '-' || (source_[at_] == '+' && kind != '{')))
      advance(1);
    if (kind == '#') return comment(line);
    add(kind == '%' ? TokenKind::kBlockBegin : TokenKind::kOutputBegin, "");
    int open = 0;  // brackets: what ends a tag is nothing inside of them
    while (true) {
      advance(leading_space(rest()));
      if (at_ >= source_.size()) return wrong(line, "a tag is not closed");
      if (open == 0 && ends(kind)) return {};
      PLEXRL_TRY(token());
      const Token& last = tokens_.back();
      if (last.kind != TokenKind::kSign) continue;
      if (last.text == "(" || last.text == "[" || last.text == "{") ++open;
      if (last.text == ")" || last.text == "]" || last.text == "}") --open;
      if (open < 0) return wrong(line_, "'" + last.text + "' closes nothing");
    }
  }

  // Takes the end of a tag, when it is here, and what goes with it.
  bool ends(char kind) {
    const char first = kind == '{' ? '}' : '%';
    const std::string_view here = rest();
    const bool sign = here.front() == '-' || (here.front() == '+' && kind != '{');
    const std::string_view end = here.substr(sign ? 1 : 0, 2);
    if (end.size() < 2 || end[0] != first || end[1] != '}') return false;
    add(kind == '{' ? TokenKind::kOutputEnd : TokenKind::kBlockEnd, "");
    after(sign ? here.front() : ' ', (sign ? 3U : 2U), kind != '{');
    return true;
  }

  void after(char sign, std::size_t bytes, bool takes_newline) {
    advance(bytes);
    if (sign == '-') advance(leading_space(rest()));
    if (sign == ' ' && takes_newline && rest().starts_with('\n')) advance(1);
  }

  Status comment(std::size_t line) {
    const std::size_t end = source_.find("#}", at_);
    if (end == std::string::npos) return wrong(line, "a comment is not closed");
    const char last = end > at_ ? source_[end - 1] : ' ';
    advance(end - at_);
    after(last == '-' || last == '+' ? last : ' ', 2, true);
    return {};
  }

  Status token() {
    const char c = source_[at_];
    if (c == '"' || c == '\'') return string();
    if (is_digit(c)) return number();
    if (is_name(c)) {
      std::size_t bytes = 1;
      while (at_ + bytes < source_.size() && is_name(source_[at_ + bytes])) ++bytes;
      if (bytes > kMaxName) return wrong(line_, "a name is too long");
      add(TokenKind::kName, std::string(rest().substr(0, bytes)));
      advance(bytes);
      return {};
    }
    static constexpr std::array<std::string_view, 28> kSigns = {
        "==", "!=", "<=", ">=", "//", "**", "<", ">", "=", "+", "-", "*", "/", "%",
        "~",  "(",  ")",  "[",  "]",  "{",  "}", ",", ".", ":", "|", ";", "&", "@"};
    for (const std::string_view sign : kSigns)
      if (rest().starts_with(sign)) {
        add(TokenKind::kSign, std::string(sign));
        advance(sign.size());
        return {};
      }
    return wrong(line_, "a character that means nothing here");
  }

  Status number() {
    std::size_t bytes = 0;
    const auto digits = [&] {
      while (at_ + bytes < source_.size() && is_digit(source_[at_ + bytes])) ++bytes;
    };
    digits();
    const bool real = at_ + bytes + 1 < source_.size() && source_[at_ + bytes] == '.' &&
                      is_digit(source_[at_ + bytes + 1]);
    if (real) {
      ++bytes;
      digits();
    }
    if (bytes > 18) return wrong(line_, "a number of more than 18 digits");
    add(real ? TokenKind::kFloat : TokenKind::kInteger, std::string(rest().substr(0, bytes)));
    advance(bytes);
    if (at_ < source_.size() && is_name(source_[at_])) return wrong(line_, "a name after a number");
    return {};
  }

  Status string() {
    const char quote = source_[at_];
    const std::size_t line = line_;
    advance(1);
    std::string text;
    while (at_ < source_.size() && source_[at_] != quote) {
      if (source_[at_] == '\\' && at_ + 1 < source_.size()) {
        escape(&text);
      } else {
        text += source_[at_];
        advance(1);
      }
    }
    if (at_ >= source_.size()) return wrong(line, "a string is not closed");
    advance(1);
    add(TokenKind::kString, std::move(text));
    return {};
  }

  // As in a string of Python; what is none of its escapes stays as it is.
  void escape(std::string* text) {
    static constexpr std::string_view kFrom = "ntr\\'\"abfv";
    static constexpr std::string_view kTo = "\n\t\r\\'\"\a\b\f\v";
    const char c = source_[at_ + 1];
    if (const auto found = kFrom.find(c); found != std::string_view::npos) {
      *text += kTo[found];
      advance(2);
      return;
    }
    const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    char32_t code = 0;
    std::size_t seen = 0;
    while (seen < digits && at_ + 2 + seen < source_.size() &&
           hex_digit(source_[at_ + 2 + seen]) >= 0)
      code = code << 4 | static_cast<char32_t>(hex_digit(source_[at_ + 2 + seen++]));
    const bool character = code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
    if (digits == 0 || seen < digits || !character) {
      *text += '\\';
      advance(c == '\n' ? 2 : 1);
      if (c == '\n') text->pop_back();  // a line that goes on
      return;
    }
    tokenizer::append_utf8(text, code);
    advance(2 + digits);
  }

  std::string source_;
  std::size_t at_ = 0;
  std::size_t line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

Status wrong(std::size_t line, const std::string& what) {
  return error(Code::INVALID_ARGUMENT, "chat template, line %zu: %s", line, what.c_str());
}

Result<std::vector<Token>> lex(std::string_view source) { return Lexer(normalised(source)).run(); }

}  // namespace plexrl::chat
