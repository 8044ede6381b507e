// SPDX-License-Identifier: Apache-2.0
#include "chat/expression_parser.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace plexrl::chat {
namespace {

using Kind = Expr::Kind;

std::unique_ptr<Expr> make(Kind kind, std::size_t line, std::string text = {}) {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  expr->text = std::move(text);
  return expr;
}

// Also bounds chains such as a + a + ..., which need no recursion here but in the evaluation.
Result<ExprPtr> finished(std::unique_ptr<Expr> expr) {
  for (const ExprPtr& kid : expr->kids)
    if (kid) expr->depth = std::max(expr->depth, kid->depth + 1);
  for (const auto& kid : expr->named) expr->depth = std::max(expr->depth, kid.second->depth + 1);
  if (expr->depth > kMaxSyntaxDepth) return wrong(expr->line, "an expression is nested too deep");
  return ExprPtr(std::move(expr));
}

Result<ExprPtr> join(Kind kind, std::size_t line, std::string text, ExprPtr left, ExprPtr right) {
  auto expr = make(kind, line, std::move(text));
  expr->kids.push_back(std::move(left));
  if (right) expr->kids.push_back(std::move(right));
  return finished(std::move(expr));
}

Result<ExprPtr> parse_or(Cursor& cursor);
Result<ExprPtr> parse_unary(Cursor& cursor, bool with_filter);

// What `close` ends, with commas between; the opening bracket is taken.
Status parse_items(Cursor& cursor, const char* close, std::vector<ExprPtr>* items) {
  while (!cursor.skip_sign(close)) {
    PLEXRL_ASSIGN(items->emplace_back(), parse_expression(cursor));
    if (!cursor.skip_sign(",") && !cursor.at_sign(close))
      return cursor.wrong_here(std::string("',' or '") + close + "' is missing");
  }
  return {};
}

Status parse_arguments(Cursor& cursor, Expr* call) {
  while (!cursor.skip_sign(")")) {
    const Token& after = cursor.peek(1);
    const bool named = cursor.peek().kind == TokenKind::kName && after.kind == TokenKind::kSign &&
                       after.text == "=";
    if (named) {
      std::string name = cursor.next().text;
      (void)cursor.next();
      PLEXRL_ASSIGN(auto value, parse_expression(cursor));
      call->named.emplace_back(std::move(name), std::move(value));
    } else {
      PLEXRL_ASSIGN(call->kids.emplace_back(), parse_expression(cursor));
    }
    if (!cursor.skip_sign(",") && !cursor.at_sign(")"))
      return cursor.wrong_here("',' or ')' is missing");
  }
  return {};
}

Result<ExprPtr> parse_literal(Cursor& cursor) {
  const Token token = cursor.next();
  auto expr = make(Kind::kLiteral, token.line);
  if (token.kind == TokenKind::kString) {
    std::string text = token.text;
    while (cursor.peek().kind == TokenKind::kString) text += cursor.next().text;
    expr->literal = Value(Text(std::move(text), false));
  } else if (token.kind == TokenKind::kInteger) {
    std::int64_t value = 0;
    (void)std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
    expr->literal = Value(value);
  } else {
    double value = 0;
    (void)std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
    expr->literal = Value(value);
  }
  return finished(std::move(expr));
}

Result<ExprPtr> parse_name(Cursor& cursor) {
  const Token token = cursor.next();
  const std::string& name = token.text;
  auto literal = make(Kind::kLiteral, token.line);
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    literal->literal = Value(name == "true" || name == "True");
    return finished(std::move(literal));
  }
  if (name == "none" || name == "None") {
    literal->literal = Value(None{});
    return finished(std::move(literal));
  }
  return finished(make(Kind::kName, token.line, name));
}

// (a), (a, b) and ().
Result<ExprPtr> parse_brackets(Cursor& cursor) {
  auto list = make(Kind::kList, cursor.next().line);
  if (!cursor.at_sign(")")) {
    PLEXRL_ASSIGN(auto first, parse_expression(cursor));
    if (cursor.skip_sign(")")) return first;
    list->kids.push_back(std::move(first));
    PLEXRL_TRY(cursor.take_sign(","));
  }
  PLEXRL_TRY(parse_items(cursor, ")", &list->kids));
  return finished(std::move(list));
}

Result<ExprPtr> parse_object(Cursor& cursor) {
  auto object = make(Kind::kObject, cursor.next().line);
  while (!cursor.skip_sign("}")) {
    PLEXRL_ASSIGN(object->kids.emplace_back(), parse_expression(cursor));
    PLEXRL_TRY(cursor.take_sign(":"));
    PLEXRL_ASSIGN(object->kids.emplace_back(), parse_expression(cursor));
    if (!cursor.skip_sign(",") && !cursor.at_sign("}"))
      return cursor.wrong_here("',' or '}' is missing");
  }
  return finished(std::move(object));
}

Result<ExprPtr> parse_primary(Cursor& cursor) {
  const Token& token = cursor.peek();
  switch (token.kind) {
    case TokenKind::kName:
      return parse_name(cursor);
    case TokenKind::kString:
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return parse_literal(cursor);
    default:
      break;
  }
  if (cursor.at_sign("(")) return parse_brackets(cursor);
  if (cursor.at_sign("{")) return parse_object(cursor);
  if (!cursor.at_sign("[")) return cursor.wrong_here("a value is missing");
  auto list = make(Kind::kList, cursor.next().line);
  PLEXRL_TRY(parse_items(cursor, "]", &list->kids));
  return finished(std::move(list));
}

// What is in [ ], behind `of`.
Result<ExprPtr> parse_subscript(Cursor& cursor, ExprPtr of) {
  const std::size_t line = cursor.peek().line;
  std::array<ExprPtr, 3> parts;
  std::size_t colons = 0;
  while (!cursor.at_sign("]")) {
    if (cursor.skip_sign(":")) {
      if (++colons > 2) return cursor.wrong_here("more than two ':'");
    } else if (parts[colons]) {
      return cursor.wrong_here("']' is missing");
    } else {
      PLEXRL_ASSIGN(parts[colons], parse_expression(cursor));
    }
  }
  (void)cursor.next();
  if (colons == 0 && !parts[0]) return wrong(line, "nothing between '[' and ']'");
  auto expr = make(colons == 0 ? Kind::kItem : Kind::kSlice, line);
  expr->kids.push_back(std::move(of));
  for (std::size_t i = 0; i < (colons == 0 ? 1U : 3U); ++i)
    expr->kids.push_back(std::move(parts[i]));
  return finished(std::move(expr));
}

Result<ExprPtr> parse_call(Cursor& cursor, ExprPtr of) {
  auto call = make(Kind::kCall, cursor.next().line);
  call->kids.push_back(std::move(of));
  PLEXRL_TRY(parse_arguments(cursor, call.get()));
  return finished(std::move(call));
}

Result<ExprPtr> parse_postfix(Cursor& cursor, ExprPtr expr) {
  while (true) {
    const std::size_t line = cursor.peek().line;
    if (cursor.skip_sign(".")) {
      std::string name;
      PLEXRL_TRY(cursor.take_name(&name));
      PLEXRL_ASSIGN(expr, join(Kind::kAttribute, line, std::move(name), std::move(expr), nullptr));
    } else if (cursor.skip_sign("[")) {
      PLEXRL_ASSIGN(expr, parse_subscript(cursor, std::move(expr)));
    } else if (cursor.at_sign("(")) {
      PLEXRL_ASSIGN(expr, parse_call(cursor, std::move(expr)));
    } else {
      return expr;
    }
  }
}

Result<ExprPtr> parse_filter(Cursor& cursor, ExprPtr of) {
  auto filter = make(Kind::kFilter, cursor.next().line);
  PLEXRL_TRY(cursor.take_name(&filter->text));
  filter->kids.push_back(std::move(of));
  if (cursor.skip_sign("(")) PLEXRL_TRY(parse_arguments(cursor, filter.get()));
  return finished(std::move(filter));
}

Result<ExprPtr> parse_test(Cursor& cursor, ExprPtr of) {
  const std::size_t line = cursor.next().line;
  const bool negated = cursor.skip_name("not");
  std::string name;
  PLEXRL_TRY(cursor.take_name(&name));
  PLEXRL_ASSIGN(ExprPtr test, join(Kind::kTest, line, std::move(name), std::move(of), nullptr));
  if (!negated) return test;
  return join(Kind::kNot, line, {}, std::move(test), nullptr);
}

Result<ExprPtr> parse_filters(Cursor& cursor, ExprPtr expr) {
  while (true) {
    const bool test = cursor.peek().kind == TokenKind::kName && cursor.peek().text == "is";
    if (cursor.at_sign("|")) {
      PLEXRL_ASSIGN(expr, parse_filter(cursor, std::move(expr)));
    } else if (test) {
      PLEXRL_ASSIGN(expr, parse_test(cursor, std::move(expr)));
    } else if (cursor.at_sign("(")) {
      PLEXRL_ASSIGN(expr, parse_call(cursor, std::move(expr)));
    } else {
      return expr;
    }
  }
}

Result<ExprPtr> parse_unary(Cursor& cursor, bool with_filter) {
  const std::size_t line = cursor.peek().line;
  if (++cursor.depth > kMaxSyntaxDepth) return wrong(line, "an expression is nested too deep");
  ExprPtr expr;
  if (cursor.skip_sign("-")) {
    PLEXRL_ASSIGN(auto of, parse_unary(cursor, false));
    PLEXRL_ASSIGN(expr, join(Kind::kNegative, line, {}, std::move(of), nullptr));
  } else {
    PLEXRL_ASSIGN(expr, parse_primary(cursor));
  }
  --cursor.depth;
  PLEXRL_ASSIGN(expr, parse_postfix(cursor, std::move(expr)));
  if (with_filter) return parse_filters(cursor, std::move(expr));
  return expr;
}

// Operators of one level, from the left.
template <std::size_t N>
Result<ExprPtr> parse_level(Cursor& cursor, const std::array<std::string_view, N>& signs,
                            Result<ExprPtr> (*below)(Cursor&)) {
  PLEXRL_ASSIGN(ExprPtr left, below(cursor));
  while (cursor.peek().kind == TokenKind::kSign &&
         std::find(signs.begin(), signs.end(), cursor.peek().text) != signs.end()) {
    const Token sign = cursor.next();
    PLEXRL_ASSIGN(ExprPtr right, below(cursor));
    PLEXRL_ASSIGN(left,
                  join(Kind::kBinary, sign.line, sign.text, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExprPtr> parse_factor(Cursor& cursor) { return parse_unary(cursor, true); }
Result<ExprPtr> parse_product(Cursor& cursor) {
  return parse_level<4>(cursor, {"*", "/", "//", "%"}, parse_factor);
}
Result<ExprPtr> parse_joined(Cursor& cursor) {
  return parse_level<1>(cursor, {"~"}, parse_product);
}
Result<ExprPtr> parse_sum(Cursor& cursor) {
  return parse_level<2>(cursor, {"+", "-"}, parse_joined);
}

// "" when no comparison follows; else it is taken.
std::string take_comparison(Cursor& cursor) {
  static constexpr std::array<std::string_view, 6> kSigns = {"==", "!=", "<", "<=", ">", ">="};
  for (const std::string_view sign : kSigns)
    if (cursor.skip_sign(sign)) return std::string(sign);
  if (cursor.skip_name("in")) return "in";
  const Token& after = cursor.peek(1);
  const bool negated = cursor.peek().kind == TokenKind::kName && cursor.peek().text == "not" &&
                       after.kind == TokenKind::kName && after.text == "in";
  if (!negated) return {};
  (void)cursor.next();
  (void)cursor.next();
  return "not in";
}

Result<ExprPtr> parse_comparison(Cursor& cursor) {
  PLEXRL_ASSIGN(ExprPtr left, parse_sum(cursor));
  const std::size_t line = cursor.peek().line;
  std::string sign = take_comparison(cursor);
  if (sign.empty()) return left;
  PLEXRL_ASSIGN(ExprPtr right, parse_sum(cursor));
  PLEXRL_ASSIGN(left,
                join(Kind::kBinary, line, std::move(sign), std::move(left), std::move(right)));
  if (!take_comparison(cursor).empty())
    return error(Code::UNSUPPORTED, "chat template, line %zu: a chain of comparisons", line);
  return left;
}

Result<ExprPtr> parse_not(Cursor& cursor) {
  const std::size_t line = cursor.peek().line;
  if (!cursor.skip_name("not")) return parse_comparison(cursor);
  if (++cursor.depth > kMaxSyntaxDepth) return wrong(line, "an expression is nested too deep");
  PLEXRL_ASSIGN(ExprPtr of, parse_not(cursor));
  --cursor.depth;
  return join(Kind::kNot, line, {}, std::move(of), nullptr);
}

Result<ExprPtr> parse_and(Cursor& cursor) {
  PLEXRL_ASSIGN(ExprPtr left, parse_not(cursor));
  for (std::size_t line = cursor.peek().line; cursor.skip_name("and"); line = cursor.peek().line) {
    PLEXRL_ASSIGN(ExprPtr right, parse_not(cursor));
    PLEXRL_ASSIGN(left, join(Kind::kAnd, line, {}, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExprPtr> parse_or(Cursor& cursor) {
  PLEXRL_ASSIGN(ExprPtr left, parse_and(cursor));
  for (std::size_t line = cursor.peek().line; cursor.skip_name("or"); line = cursor.peek().line) {
    PLEXRL_ASSIGN(ExprPtr right, parse_and(cursor));
    PLEXRL_ASSIGN(left, join(Kind::kOr, line, {}, std::move(left), std::move(right)));
  }
  return left;
}

}  // namespace

Result<ExprPtr> parse_without_choice(Cursor& cursor) { return parse_or(cursor); }

Result<ExprPtr> parse_expression(Cursor& cursor) {
  if (++cursor.depth > kMaxSyntaxDepth)
    return cursor.wrong_here("an expression is nested too deep");
  PLEXRL_ASSIGN(ExprPtr value, parse_or(cursor));
  for (std::size_t line = cursor.peek().line; cursor.skip_name("if"); line = cursor.peek().line) {
    auto choice = make(Kind::kChoice, line);
    choice->kids.push_back(std::move(value));
    PLEXRL_ASSIGN(choice->kids.emplace_back(), parse_or(cursor));
    ExprPtr other;
    if (cursor.skip_name("else")) {
      PLEXRL_ASSIGN(other, parse_expression(cursor));
    }
    choice->kids.push_back(std::move(other));
    PLEXRL_ASSIGN(value, finished(std::move(choice)));
  }
  --cursor.depth;
  return value;
}

Result<ExprPtr> parse_tuple(Cursor& cursor) {
  PLEXRL_ASSIGN(ExprPtr first, parse_expression(cursor));
  if (!cursor.at_sign(",")) return first;
  auto list = make(Kind::kList, cursor.peek().line);
  list->kids.push_back(std::move(first));
  while (cursor.skip_sign(",")) {
    PLEXRL_ASSIGN(list->kids.emplace_back(), parse_expression(cursor));
  }
  return finished(std::move(list));
}

}  // namespace plexrl::chat
