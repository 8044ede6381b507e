// SPDX-License-Identifier: Apache-2.0
// Expressions of a chat template, by Jinja's precedence: if-else, or, and, not, comparison, + -,
// ~, * / // %, unary, and what follows a value (attribute, item, call, filter, test).
#pragma once

#include <string_view>
#include <vector>

#include "chat/lexer.h"
#include "chat/syntax.h"

namespace plexrl::chat {

// Where the parser stands in the tokens.
class Cursor {
 public:
  explicit Cursor(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  [[nodiscard]] const Token& peek(std::size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  const Token& next() {
    const Token& token = peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool skip_sign(std::string_view sign) { return skip(TokenKind::kSign, sign); }
  bool skip_name(std::string_view name) { return skip(TokenKind::kName, name); }
  [[nodiscard]] bool at_sign(std::string_view sign) const {
    return peek().kind == TokenKind::kSign && peek().text == sign;
  }
  [[nodiscard]] Status take(TokenKind kind, const char* what) {
    if (peek().kind != kind) return wrong_here(std::string(what) + " is missing");
    (void)next();
    return {};
  }
  [[nodiscard]] Status take_sign(const char* sign) {
    return skip_sign(sign) ? Status() : wrong_here(std::string("'") + sign + "' is missing");
  }
  [[nodiscard]] Status take_name(std::string* name) {
    *name = peek().text;
    return take(TokenKind::kName, "a name");
  }
  [[nodiscard]] Status wrong_here(const std::string& what) const {
    return wrong(peek().line, what);
  }
  // Bounds the recursion of the parser.
  std::size_t depth = 0;

 private:
  bool skip(TokenKind kind, std::string_view text) {
    if (peek().kind != kind || peek().text != text) return false;
    (void)next();
    return true;
  }
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

[[nodiscard]] Result<ExprPtr> parse_expression(Cursor& cursor);
// In a loop's head, where `if` begins its condition.
[[nodiscard]] Result<ExprPtr> parse_without_choice(Cursor& cursor);
// One, or a list of them without brackets.
[[nodiscard]] Result<ExprPtr> parse_tuple(Cursor& cursor);

}  // namespace plexrl::chat
