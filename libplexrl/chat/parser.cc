// SPDX-License-Identifier: Apache-2.0
// Statements here, expressions in expression_parser.cc.
#include <algorithm>
#include <array>

#include "chat/expression_parser.h"
#include "chat/syntax.h"

namespace plexrl::chat {
namespace {

constexpr std::size_t kMaxBlockDepth = 40;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : cursor_(std::move(tokens)) {}

  Result<Block> run() {
    Block all;
    PLEXRL_TRY(body({}, &all));
    return all;
  }

 private:
  using Ends = std::vector<std::string_view>;

  // Up to a tag that `ends` names, whose name is then the next token, or to the end of the source.
  Status body(const Ends& ends, Block* block) {
    if (++depth_ > kMaxBlockDepth) return cursor_.wrong_here("blocks are nested too deep");
    while (true) {
      const Token& token = cursor_.next();
      if (token.kind == TokenKind::kEnd) {
        --depth_;
        return ends.empty() ? Status() : wrong(token.line, "a block is not closed");
      }
      if (token.kind == TokenKind::kText) {
        add_text(token, block);
      } else if (token.kind == TokenKind::kOutputBegin) {
        PLEXRL_TRY(output(block));
      } else {  // kBlockBegin: the lexer has nothing else here
        const Token& name = cursor_.peek();
        if (name.kind == TokenKind::kName &&
            std::find(ends.begin(), ends.end(), name.text) != ends.end()) {
          --depth_;
          return {};
        }
        PLEXRL_TRY(tag(block));
      }
    }
  }

  static void add_text(const Token& token, Block* block) {
    Stmt stmt;
    stmt.line = token.line;
    stmt.text = Text(token.text, false);
    block->push_back(std::move(stmt));
  }

  Status output(Block* block) {
    Stmt stmt;
    stmt.kind = Stmt::Kind::kOutput;
    stmt.line = cursor_.peek().line;
    PLEXRL_ASSIGN(stmt.exprs.emplace_back(), parse_expression(cursor_));
    block->push_back(std::move(stmt));
    return cursor_.take(TokenKind::kOutputEnd, "'}}'");
  }

  Status tag(Block* block) {
    const Token name = cursor_.next();
    if (name.kind != TokenKind::kName) return wrong(name.line, "a tag without a name");
    Stmt stmt;
    stmt.line = name.line;
    if (name.text == "if") return if_tag(std::move(stmt), block);
    if (name.text == "for") return for_tag(std::move(stmt), block);
    if (name.text == "set") return set_tag(std::move(stmt), block);
    if (name.text == "generation") {  // marks what the assistant says; writes nothing itself
      PLEXRL_TRY(end_of_tag());
      PLEXRL_TRY(body({"endgeneration"}, block));
      return close();
    }
    if (name.text == "break" || name.text == "continue") {
      if (loops_ == 0) return wrong(name.line, "'" + name.text + "' outside of a loop");
      stmt.kind = name.text == "break" ? Stmt::Kind::kBreak : Stmt::Kind::kContinue;
      block->push_back(std::move(stmt));
      return end_of_tag();
    }
    static constexpr std::array<std::string_view, 12> kOthers = {
        "macro",   "call",  "filter", "import", "from", "include",
        "extends", "block", "raw",    "with",   "do",   "autoescape"};
    if (std::find(kOthers.begin(), kOthers.end(), name.text) != kOthers.end())
      return error(Code::UNSUPPORTED, "chat template, line %zu: '%s' is not supported", name.line,
                   name.text.c_str());
    return wrong(name.line, "no tag '" + name.text.substr(0, 40) + "' is expected here");
  }

  Status end_of_tag() { return cursor_.take(TokenKind::kBlockEnd, "'%}'"); }
  // The end tag of a block, whose name the caller has seen.
  Status close() {
    (void)cursor_.next();
    return end_of_tag();
  }

  Status if_tag(Stmt stmt, Block* block) {
    stmt.kind = Stmt::Kind::kIf;
    bool more = true;
    while (more) {
      PLEXRL_ASSIGN(stmt.exprs.emplace_back(), parse_expression(cursor_));
      PLEXRL_TRY(end_of_tag());
      PLEXRL_TRY(body({"elif", "else", "endif"}, &stmt.bodies.emplace_back()));
      const std::string name = cursor_.next().text;
      more = name == "elif";
      if (more) continue;
      if (name == "else") {
        PLEXRL_TRY(end_of_tag());
        PLEXRL_TRY(body({"endif"}, &stmt.bodies.emplace_back()));
        (void)cursor_.next();
      }
    }
    block->push_back(std::move(stmt));
    return end_of_tag();
  }

  Status for_tag(Stmt stmt, Block* block) {
    stmt.kind = Stmt::Kind::kFor;
    do {
      PLEXRL_TRY(cursor_.take_name(&stmt.names.emplace_back()));
    } while (cursor_.skip_sign(","));
    if (!cursor_.skip_name("in")) return cursor_.wrong_here("'in' is missing");
    PLEXRL_ASSIGN(stmt.exprs.emplace_back(), parse_without_choice(cursor_));
    if (cursor_.skip_name("if")) {
      PLEXRL_ASSIGN(stmt.exprs.emplace_back(), parse_expression(cursor_));
    }
    if (cursor_.peek().text == "recursive")
      return error(Code::UNSUPPORTED, "chat template, line %zu: a recursive loop", stmt.line);
    PLEXRL_TRY(end_of_tag());
    ++loops_;
    PLEXRL_TRY(body({"else", "endfor"}, &stmt.bodies.emplace_back()));
    --loops_;
    if (cursor_.next().text == "else") {
      PLEXRL_TRY(end_of_tag());
      PLEXRL_TRY(body({"endfor"}, &stmt.bodies.emplace_back()));
      (void)cursor_.next();
    }
    block->push_back(std::move(stmt));
    return end_of_tag();
  }

  Status set_tag(Stmt stmt, Block* block) {
    stmt.kind = Stmt::Kind::kSet;
    PLEXRL_TRY(cursor_.take_name(&stmt.names.emplace_back()));
    if (cursor_.skip_sign(".")) PLEXRL_TRY(cursor_.take_name(&stmt.names.emplace_back()));
    if (cursor_.skip_sign("=")) {
      PLEXRL_ASSIGN(stmt.exprs.emplace_back(), parse_tuple(cursor_));
      block->push_back(std::move(stmt));
      return end_of_tag();
    }
    stmt.kind = Stmt::Kind::kSetBlock;
    PLEXRL_TRY(end_of_tag());
    PLEXRL_TRY(body({"endset"}, &stmt.bodies.emplace_back()));
    block->push_back(std::move(stmt));
    return close();
  }

  Cursor cursor_;
  std::size_t depth_ = 0;
  std::size_t loops_ = 0;
};

}  // namespace

Result<Block> parse(std::string_view source) {
  PLEXRL_ASSIGN(auto tokens, lex(source));
  return Parser(std::move(tokens)).run();
}

}  // namespace plexrl::chat
