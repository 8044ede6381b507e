// SPDX-License-Identifier: Apache-2.0
#include "chat/evaluator.h"

#include <algorithm>
#include <array>

#include "chat/lexer.h"
#include "chat/operators.h"

namespace plexrl::chat {
namespace {

constexpr std::string_view kPrefix = "chat template: ";

// "chat template, line 3: ..." of "chat template: ...", once.
Status at_line(const Status& status, std::size_t line) {
  const std::string& text = status.text();
  if (!text.starts_with(kPrefix)) return status;
  return error(status.code(), "chat template, line %zu: %s", line,
               text.substr(kPrefix.size()).c_str());
}

Result<std::int64_t> index_of(const Value& value) {
  std::int64_t room = 0;
  const std::int64_t* const index = value.integer(&room);
  if (index != nullptr) return *index;
  return error(Code::INVALID_ARGUMENT, "chat template: %s as an index", value.kind());
}

// Members of what has `size`, from -> to in steps, as Python's slice.indices has them.
struct Range {
  std::int64_t begin = 0, end = 0, step = 1;
};
Result<Range> range_of(const std::array<Value, 3>& parts, std::int64_t size) {
  Range range;
  if (!parts[2].none()) {
    PLEXRL_ASSIGN(range.step, index_of(parts[2]));
  }
  if (range.step == 0) return error(Code::INVALID_ARGUMENT, "chat template: a slice in steps of 0");
  range.step = std::clamp(range.step, -size - 1, size + 1);
  const bool down = range.step < 0;
  const std::int64_t least = down ? -1 : 0;
  const std::int64_t most = down ? size - 1 : size;
  range.begin = down ? most : least;
  range.end = down ? least : most;
  for (const bool first : {true, false}) {
    const Value& part = parts[first ? 0 : 1];
    if (part.none()) continue;
    PLEXRL_ASSIGN(std::int64_t at, index_of(part));
    if (at < 0) at = std::max(at, -size - 1) + size;
    (first ? range.begin : range.end) = std::clamp(at, least, most);
  }
  return range;
}

Value loop_state(const std::vector<Value>& items, std::size_t index) {
  auto loop = std::make_shared<Namespace>();
  const auto whole = [](std::size_t count) { return Value(static_cast<std::int64_t>(count)); };
  loop->items["index0"] = whole(index);
  loop->items["index"] = whole(index + 1);
  loop->items["revindex0"] = whole(items.size() - index - 1);
  loop->items["revindex"] = whole(items.size() - index);
  loop->items["length"] = whole(items.size());
  loop->items["first"] = Value(index == 0);
  loop->items["last"] = Value(index + 1 == items.size());
  if (index > 0) loop->items["previtem"] = items[index - 1];
  if (index + 1 < items.size()) loop->items["nextitem"] = items[index + 1];
  return Value(std::move(loop));
}

}  // namespace

Result<Text> Evaluator::run(const Block& all) {
  PLEXRL_TRY(block(all).status());
  return std::move(out_);
}

Status Evaluator::write(const Text& text) {
  PLEXRL_TRY(budget_->spend(text.size()));
  if (text.size() > kMaxOutput - out_.size())
    return error(Code::INVALID_ARGUMENT, "chat template: it writes more than %zu bytes",
                 kMaxOutput);
  out_.append(text);
  return {};
}

// ---- statements ----

Result<Evaluator::Flow> Evaluator::block(const Block& all) {
  for (const Stmt& stmt : all) {
    PLEXRL_TRY(budget_->step());
    auto flow = statement(stmt);
    if (!flow.has_value()) return at_line(flow.error(), stmt.line);
    if (*flow != Flow::kOn) return flow;
  }
  return Flow::kOn;
}

Result<Evaluator::Flow> Evaluator::statement(const Stmt& stmt) {
  switch (stmt.kind) {
    case Stmt::Kind::kText:
      PLEXRL_TRY(write(stmt.text));
      return Flow::kOn;
    case Stmt::Kind::kOutput: {
      PLEXRL_ASSIGN(const Value value, evaluate(*stmt.exprs[0]));
      PLEXRL_ASSIGN(const Text text, to_text(value, *budget_));
      PLEXRL_TRY(write(text));
      return Flow::kOn;
    }
    case Stmt::Kind::kIf:
      return choose(stmt);
    case Stmt::Kind::kFor:
      return loop(stmt);
    case Stmt::Kind::kSet: {
      PLEXRL_ASSIGN(Value value, evaluate(*stmt.exprs[0]));
      PLEXRL_TRY(assign(stmt, std::move(value)));
      return Flow::kOn;
    }
    case Stmt::Kind::kSetBlock: {
      Text outer = std::exchange(out_, {});
      PLEXRL_ASSIGN(const Flow flow, block(stmt.bodies[0]));
      PLEXRL_TRY(assign(stmt, Value(std::exchange(out_, std::move(outer)))));
      return flow;
    }
    case Stmt::Kind::kBreak:
      return Flow::kBreak;
    case Stmt::Kind::kContinue:
      return Flow::kContinue;
  }
  return error(Code::INTERNAL, "chat template: an unknown statement");
}

Result<Evaluator::Flow> Evaluator::choose(const Stmt& stmt) {
  for (std::size_t i = 0; i < stmt.bodies.size(); ++i) {
    if (i >= stmt.exprs.size()) return block(stmt.bodies[i]);
    PLEXRL_ASSIGN(const Value value, evaluate(*stmt.exprs[i]));
    if (value.truth()) return block(stmt.bodies[i]);
  }
  return Flow::kOn;
}

// Its own names are in the innermost scope.
Status Evaluator::bind(const Stmt& stmt, const Value& item) {
  if (stmt.names.size() == 1) {
    scopes_.back()[stmt.names[0]] = item;
    return {};
  }
  PLEXRL_ASSIGN(const auto parts, members(item, *budget_));
  if (parts.size() != stmt.names.size())
    return error(Code::INVALID_ARGUMENT, "chat template: %zu names for %zu values",
                 stmt.names.size(), parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) scopes_.back()[stmt.names[i]] = parts[i];
  return {};
}

Result<std::vector<Value>> Evaluator::loop_items(const Stmt& stmt) {
  PLEXRL_ASSIGN(const Value over, evaluate(*stmt.exprs[0]));
  PLEXRL_ASSIGN(auto items, members(over, *budget_));
  if (stmt.exprs.size() == 1) return items;
  std::vector<Value> kept;
  for (const Value& item : items) {
    scopes_.emplace_back();
    PLEXRL_TRY(bind(stmt, item));
    PLEXRL_ASSIGN(const Value wanted, evaluate(*stmt.exprs[1]));
    scopes_.pop_back();
    if (wanted.truth()) kept.push_back(item);
  }
  return kept;
}

Result<Evaluator::Flow> Evaluator::loop(const Stmt& stmt) {
  PLEXRL_ASSIGN(const auto items, loop_items(stmt));
  if (items.empty() && stmt.bodies.size() > 1) return block(stmt.bodies[1]);
  for (std::size_t i = 0; i < items.size(); ++i) {
    PLEXRL_TRY(budget_->members(10));
    scopes_.emplace_back();
    scopes_.back()["loop"] = loop_state(items, i);
    PLEXRL_TRY(bind(stmt, items[i]));
    PLEXRL_ASSIGN(const Flow flow, block(stmt.bodies[0]));
    scopes_.pop_back();
    if (flow == Flow::kBreak) break;
  }
  return Flow::kOn;
}

Status Evaluator::assign(const Stmt& stmt, Value value) {
  if (stmt.names.size() == 1) {
    scopes_.back()[stmt.names[0]] = std::move(value);
    return {};
  }
  const Value of = look_up(stmt.names[0]);
  if (of.name_space() == nullptr || value.name_space() != nullptr)
    return error(Code::INVALID_ARGUMENT, "chat template: '%.40s.%.40s' of %s is set to %s",
                 stmt.names[0].c_str(), stmt.names[1].c_str(), of.kind(), value.kind());
  of.name_space()->items[stmt.names[1]] = std::move(value);
  return {};
}

// ---- expressions ----

Value Evaluator::look_up(const std::string& name) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
    if (const auto found = scope->find(name); found != scope->end()) return found->second;
  return Value(Undefined{name});
}

Result<Value> Evaluator::evaluate(const Expr& expr) {
  PLEXRL_TRY(budget_->step());
  auto value = value_of(expr);
  if (!value.has_value()) return at_line(value.error(), expr.line);
  return value;
}

Result<Value> Evaluator::value_of(const Expr& expr) {
  switch (expr.kind) {
    case Expr::Kind::kLiteral:
      return expr.literal;
    case Expr::Kind::kName:
      return look_up(expr.text);
    case Expr::Kind::kList:
    case Expr::Kind::kObject:
      return list_or_object(expr);
    case Expr::Kind::kSlice:
      return slice(expr);
    case Expr::Kind::kCall:
      return call(expr);
    case Expr::Kind::kFilter:
      return filter(expr);
    case Expr::Kind::kNegative:
      return negative(expr);
    case Expr::Kind::kChoice:
      return choice(expr);
    default:
      break;
  }
  PLEXRL_ASSIGN(Value first, evaluate(*expr.kids[0]));
  switch (expr.kind) {
    case Expr::Kind::kAttribute:
      if (first.object() != nullptr && is_object_method(expr.text))
        return error(Code::UNSUPPORTED, "chat template: the method '%s' is not called",
                     expr.text.c_str());
      return attribute(first, expr.text);
    case Expr::Kind::kTest: {
      PLEXRL_ASSIGN(const bool holds, apply_test(expr.text, first));
      return Value(holds);
    }
    case Expr::Kind::kNot:
      return Value(!first.truth());
    case Expr::Kind::kAnd:
      return first.truth() ? evaluate(*expr.kids[1]) : first;
    case Expr::Kind::kOr:
      return first.truth() ? first : evaluate(*expr.kids[1]);
    default:
      break;
  }
  PLEXRL_ASSIGN(const Value second, evaluate(*expr.kids[1]));
  if (expr.kind == Expr::Kind::kItem) return item(first, second);
  return apply_operator(expr.text, first, second, *budget_);
}

Result<Value> Evaluator::attribute(const Value& of, const std::string& name) {
  const Value* found = nullptr;
  if (const Undefined* const undefined = of.as<Undefined>())
    return error(Code::INVALID_ARGUMENT, "chat template: '%.40s' is undefined, it has no '%.40s'",
                 undefined->name.c_str(), name.c_str());
  if (const Object* const object = of.object()) {
    PLEXRL_ASSIGN(found, find(*object, name, *budget_));
  } else if (const Namespace* const space = of.name_space()) {
    const auto at = space->items.find(name);
    if (at != space->items.end()) found = &at->second;
  }
  return found == nullptr ? Value(Undefined{name}) : *found;
}

Result<Value> Evaluator::item(const Value& of, const Value& key) {
  if (key.text() != nullptr && of.list() == nullptr && of.text() == nullptr)
    return attribute(of, key.text()->bytes());
  if (of.undefined()) return attribute(of, "[]");
  std::int64_t room = 0;
  const std::int64_t* const index = key.integer(&room);
  PLEXRL_ASSIGN(const std::int64_t size, length(of, *budget_));
  if (index == nullptr || of.object() != nullptr || *index >= size || *index < -size)
    return Value(Undefined{"[]"});
  const auto at = static_cast<std::size_t>(*index < 0 ? *index + size : *index);
  if (of.list() != nullptr) return of.list()->items[at];
  const auto offsets = of.text()->offsets();
  return Value(of.text()->part(offsets[at], offsets[at + 1]));
}

Result<Value> Evaluator::slice(const Expr& expr) {
  PLEXRL_ASSIGN(const Value of, evaluate(*expr.kids[0]));
  std::array<Value, 3> parts = {Value(None{}), Value(None{}), Value(None{})};
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (expr.kids[i + 1]) {
      PLEXRL_ASSIGN(parts[i], evaluate(*expr.kids[i + 1]));
    }
  if (of.list() == nullptr && of.text() == nullptr)
    return error(Code::INVALID_ARGUMENT, "chat template: a slice of %s", of.kind());
  PLEXRL_ASSIGN(const std::int64_t size, length(of, *budget_));
  PLEXRL_ASSIGN(const Range range, range_of(parts, size));
  const auto offsets = of.text() == nullptr ? std::vector<std::size_t>() : of.text()->offsets();
  std::vector<Value> items;
  Text text;
  for (std::int64_t i = range.begin; range.step > 0 ? i < range.end : i > range.end;
       i += range.step) {
    const auto at = static_cast<std::size_t>(i);
    PLEXRL_TRY(budget_->members(1));
    if (of.list() != nullptr)
      items.push_back(of.list()->items[at]);
    else
      text.append(of.text()->part(offsets[at], offsets[at + 1]));
  }
  return of.list() != nullptr ? make_list(std::move(items)) : Value(std::move(text));
}

Result<Value> Evaluator::list_or_object(const Expr& expr) {
  std::vector<Value> values;
  PLEXRL_TRY(budget_->members(expr.kids.size()));
  for (const ExprPtr& kid : expr.kids) {
    PLEXRL_ASSIGN(values.emplace_back(), evaluate(*kid));
  }
  if (expr.kind == Expr::Kind::kList) return make_list(std::move(values));
  std::vector<std::pair<Key, Value>> items;
  std::map<std::string_view, std::size_t>
      places;  // of a key that comes twice the last value counts
  for (std::size_t i = 0; i < values.size(); i += 2) {
    const Key* const key = values[i].as<Key>();
    if (key == nullptr)
      return error(Code::UNSUPPORTED, "chat template: %s as a key", values[i].kind());
    PLEXRL_TRY(budget_->spend((*key)->size()));
    const auto [place, added] = places.emplace((*key)->bytes(), items.size());
    if (added)
      items.emplace_back(*key, std::move(values[i + 1]));
    else
      items[place->second].second = std::move(values[i + 1]);
  }
  return make_object(std::move(items));
}

Result<Arguments> Evaluator::arguments_of(const Expr& expr) {
  Arguments arguments;
  for (std::size_t i = 1; i < expr.kids.size(); ++i) {
    PLEXRL_ASSIGN(arguments.values.emplace_back(), evaluate(*expr.kids[i]));
  }
  for (const auto& [name, value] : expr.named) {
    PLEXRL_ASSIGN(Value given, evaluate(*value));
    arguments.named.emplace_back(name, std::move(given));
  }
  return arguments;
}

Result<Value> Evaluator::call(const Expr& expr) {
  const Expr& what = *expr.kids[0];
  PLEXRL_ASSIGN(const Arguments arguments, arguments_of(expr));
  if (what.kind == Expr::Kind::kName) return call_function(what.text, arguments, *budget_);
  if (what.kind != Expr::Kind::kAttribute)
    return error(Code::INVALID_ARGUMENT, "chat template: a call of what is no function");
  PLEXRL_ASSIGN(const Value of, evaluate(*what.kids[0]));
  if (of.undefined()) return attribute(of, what.text);
  return call_method(of, what.text, arguments, *budget_);
}

Result<Value> Evaluator::filter(const Expr& expr) {
  PLEXRL_ASSIGN(const Value of, evaluate(*expr.kids[0]));
  PLEXRL_ASSIGN(const Arguments arguments, arguments_of(expr));
  return apply_filter(expr.text, of, arguments, *budget_);
}

Result<Value> Evaluator::choice(const Expr& expr) {
  PLEXRL_ASSIGN(const Value condition, evaluate(*expr.kids[1]));
  if (condition.truth()) return evaluate(*expr.kids[0]);
  if (expr.kids[2]) return evaluate(*expr.kids[2]);
  return Value(Undefined{"else"});
}

Result<Value> Evaluator::negative(const Expr& expr) {
  PLEXRL_ASSIGN(const Value of, evaluate(*expr.kids[0]));
  if (const double* const real = of.as<double>()) return Value(-*real);
  return apply_operator("-", Value(std::int64_t{0}), of, *budget_);
}

}  // namespace plexrl::chat
