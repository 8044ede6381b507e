// SPDX-License-Identifier: Apache-2.0
// The tree of a chat template. Immutable when it is made; no deeper than kMaxSyntaxDepth.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "chat/value.h"

namespace plexrl::chat {

inline constexpr std::size_t kMaxSyntaxDepth = 200;

struct Expr;
using ExprPtr = std::unique_ptr<const Expr>;

struct Expr {
  enum class Kind : std::uint8_t {
    kLiteral,
    kName,       // text
    kList,       // of kids
    kObject,     // of kids: key, value, key, value
    kAttribute,  // kids[0].text
    kItem,       // kids[0][kids[1]]
    kSlice,      // kids[0][kids[1]:kids[2]:kids[3]]; each may be nullptr
    kCall,       // kids[0](kids[1].., named)
    kFilter,     // kids[0] | text(kids[1].., named)
    kTest,       // kids[0] is text
    kNot,
    kNegative,
    kAnd,
    kOr,
    kBinary,  // kids[0] text kids[1]
    kChoice   // kids[0] if kids[1] else kids[2], which may be nullptr
  };
  Kind kind = Kind::kLiteral;
  std::size_t line = 1;
  std::size_t depth = 1;
  std::string text;
  Value literal;
  std::vector<ExprPtr> kids;
  std::vector<std::pair<std::string, ExprPtr>> named;
};

struct Stmt;
using Block = std::vector<Stmt>;

struct Stmt {
  enum class Kind : std::uint8_t {
    kText,      // text
    kOutput,    // exprs[0]
    kIf,        // exprs[i] then bodies[i]; one more body: else
    kFor,       // names in exprs[0], where exprs[1] (if any) is true: bodies[0]; none: bodies[1]
    kSet,       // names[0] = exprs[0]; with two names: names[0].names[1] = exprs[0]
    kSetBlock,  // the same with what bodies[0] writes
    kBreak,
    kContinue
  };
  Kind kind = Kind::kText;
  std::size_t line = 1;
  Text text;
  std::vector<std::string> names;
  std::vector<ExprPtr> exprs;
  std::vector<Block> bodies;
};

// INVALID_ARGUMENT: not a template. UNSUPPORTED names what is not read (macro, import, ...).
[[nodiscard]] Result<Block> parse(std::string_view source);

}  // namespace plexrl::chat
