// SPDX-License-Identifier: Apache-2.0
// Runs the tree of a chat template. One thread; made for one run.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "chat/budget.h"
#include "chat/functions.h"
#include "chat/syntax.h"
#include "chat/value.h"

namespace plexrl::chat {

using Variables = std::map<std::string, Value>;

class Evaluator {
 public:
  static constexpr std::size_t kMaxOutput = 16U << 20;

  Evaluator(Variables globals, Budget& budget) : budget_(&budget) {
    scopes_.push_back(std::move(globals));
  }
  // INVALID_ARGUMENT or UNSUPPORTED with the line.
  [[nodiscard]] Result<Text> run(const Block& block);

 private:
  enum class Flow : std::uint8_t { kOn, kBreak, kContinue };

  [[nodiscard]] Result<Flow> block(const Block& block);
  [[nodiscard]] Result<Flow> statement(const Stmt& stmt);
  [[nodiscard]] Result<Flow> choose(const Stmt& stmt);
  [[nodiscard]] Result<Flow> loop(const Stmt& stmt);
  [[nodiscard]] Result<std::vector<Value>> loop_items(const Stmt& stmt);
  [[nodiscard]] Status assign(const Stmt& stmt, Value value);
  [[nodiscard]] Status bind(const Stmt& stmt, const Value& item);
  [[nodiscard]] Status write(const Text& text);

  // Adds the line to what value_of says.
  [[nodiscard]] Result<Value> evaluate(const Expr& expr);
  [[nodiscard]] Result<Value> value_of(const Expr& expr);
  [[nodiscard]] Value look_up(const std::string& name) const;
  [[nodiscard]] Result<Value> attribute(const Value& of, const std::string& name);
  [[nodiscard]] Result<Value> item(const Value& of, const Value& key);
  [[nodiscard]] Result<Value> slice(const Expr& expr);
  [[nodiscard]] Result<Arguments> arguments_of(const Expr& expr);
  [[nodiscard]] Result<Value> call(const Expr& expr);
  [[nodiscard]] Result<Value> filter(const Expr& expr);
  [[nodiscard]] Result<Value> list_or_object(const Expr& expr);
  [[nodiscard]] Result<Value> choice(const Expr& expr);
  [[nodiscard]] Result<Value> negative(const Expr& expr);

  Budget* budget_;
  std::vector<Variables> scopes_;  // the innermost last
  Text out_;
};

}  // namespace plexrl::chat
