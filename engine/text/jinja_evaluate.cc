#include <fmt/format.h>

#include "engine/text/jinja_interpreter.h"

namespace hayfork::engine::jinja {

using Op = Expr::Op;

Value Interpreter::evaluate(const Expr& expr, const ScopePtr& scope) {
  const Runtime::Level level(rt_);
  rt_.step();
  rt_.line = expr.line;
  switch (expr.op) {
    case Op::constant:
      return expr.value;
    case Op::name:
      return evaluate_name(expr, scope);
    case Op::list:
    case Op::tuple:
    case Op::dict:
      return evaluate_container(expr, scope);
    case Op::attribute:
      return get_attribute(rt_, evaluate(*expr.operands[0], scope), expr.name);
    case Op::item: {
      const Value subject = evaluate(*expr.operands[0], scope);
      return get_item(rt_, subject, evaluate(*expr.operands[1], scope));
    }
    case Op::slice:
      return evaluate_slice(expr, scope);
    case Op::call:
      return evaluate_call(expr, scope, nullptr);
    case Op::filter:
      return evaluate_filter(expr, scope, nullptr);
    case Op::test:
      return evaluate_test(expr, scope);
    case Op::logical_not:
      return Value(!truth(evaluate(*expr.operands[0], scope)));
    case Op::negate:
      return negate(rt_, evaluate(*expr.operands[0], scope));
    case Op::positive:
      return positive(rt_, evaluate(*expr.operands[0], scope));
    case Op::logical_and:
    case Op::logical_or: {
      Value left = evaluate(*expr.operands[0], scope);
      return truth(left) == (expr.op == Op::logical_or) ? left : evaluate(*expr.operands[1], scope);
    }
    case Op::condition:
      return evaluate_condition(expr, scope);
    case Op::concat:
      return evaluate_concat(expr, scope);
    case Op::binary: {
      const Value left = evaluate(*expr.operands[0], scope);
      const Value right = evaluate(*expr.operands[1], scope);
      rt_.line = expr.line;
      return binary(rt_, expr.binary_op, left, right);
    }
    case Op::compare:
      return evaluate_compare(expr, scope);
    case Op::target_attribute:
      break;
  }
  HAY_CHECK(false, "a target is no expression");
  return {};
}

Value Interpreter::evaluate_name(const Expr& expr, const ScopePtr& scope) {
  if (const Value* found = scope->find(expr.name)) return *found;
  if (std::optional<Value> global = find_global(rt_, expr.name)) return *global;
  return Value::undefined(fmt::format("'{}' is undefined", expr.name));
}

Value Interpreter::evaluate_container(const Expr& expr, const ScopePtr& scope) {
  if (expr.op == Op::dict) {
    Dict dict;
    for (size_t i = 0; i < expr.operands.size(); i += 2) {
      const Value key = evaluate(*expr.operands[i], scope);
      dict.set(rt_, key, evaluate(*expr.operands[i + 1], scope));
    }
    return Value::dict(rt_, std::move(dict));
  }
  Values items;
  for (const ExprPtr& operand : expr.operands) items.push_back(evaluate(*operand, scope));
  return expr.op == Op::list ? Value::list(rt_, std::move(items)) : Value::tuple(rt_, std::move(items));
}

Value Interpreter::evaluate_slice(const Expr& expr, const ScopePtr& scope) {
  const Value subject = evaluate(*expr.operands[0], scope);
  Value parts[3];
  for (size_t i = 0; i < 3; ++i) {
    if (expr.operands[i + 1]) parts[i] = evaluate(*expr.operands[i + 1], scope);
  }
  return get_slice(rt_, subject, parts[0], parts[1], parts[2]);
}

Args Interpreter::evaluate_args(const CallArgs* args, const ScopePtr& scope) {
  Args values;
  if (!args) return values;
  for (const ExprPtr& expr : args->positional) values.positional.push_back(evaluate(*expr, scope));
  if (args->star) {
    for (const Value& value : to_items(rt_, evaluate(*args->star, scope))) values.positional.push_back(value);
  }
  const auto add = [&](const std::string& key, Value value) {
    if (values.find(key)) rt_.fail(fmt::format("got multiple values for keyword argument '{}'", key));
    values.keyword.emplace_back(key, std::move(value));
  };
  for (const auto& [key, expr] : args->keyword) add(key, evaluate(*expr, scope));
  if (args->double_star) {
    const Value more = evaluate(*args->double_star, scope);
    if (!more.is(Kind::dict)) rt_.fail(fmt::format("argument after ** must be a mapping, not {}", type_name(more)));
    for (const auto& [key, value] : more.dict().entries()) {
      if (!key.is(Kind::string)) rt_.fail("keywords must be strings");
      rt_.step(static_cast<int64_t>(values.keyword.size()));
      add(key.text(), value);
    }
  }
  return values;
}

Value Interpreter::evaluate_call(const Expr& expr, const ScopePtr& scope, const Value* caller) {
  const Value callee = evaluate(*expr.operands[0], scope);
  Args args = evaluate_args(expr.args.get(), scope);
  if (caller) args.keyword.emplace_back("caller", *caller);
  rt_.line = expr.line;
  return call(rt_, callee, args);
}

Value Interpreter::evaluate_filter(const Expr& expr, const ScopePtr& scope, const std::string* block_text) {
  const Value subject = !expr.operands[0] ? Value::string(rt_, *block_text)
                        : block_text && expr.operands[0]->op == Expr::Op::filter
                            ? evaluate_filter(*expr.operands[0], scope, block_text)
                            : evaluate(*expr.operands[0], scope);
  Args args = evaluate_args(expr.args.get(), scope);
  rt_.line = expr.line;
  if (!expr.filter)
    rt_.unsupported(fmt::format("the chat template uses the filter {}, which is not supported", expr.name));
  return expr.filter(rt_, subject, args);
}

Value Interpreter::evaluate_test(const Expr& expr, const ScopePtr& scope) {
  const Value subject = evaluate(*expr.operands[0], scope);
  Args args = evaluate_args(expr.args.get(), scope);
  rt_.line = expr.line;
  if (!expr.test) rt_.unsupported(fmt::format("the chat template uses the test {}, which is not supported", expr.name));
  return Value(expr.test(rt_, subject, args));
}

Value Interpreter::evaluate_condition(const Expr& expr, const ScopePtr& scope) {
  if (truth(evaluate(*expr.operands[0], scope))) return evaluate(*expr.operands[1], scope);
  if (expr.operands[2]) return evaluate(*expr.operands[2], scope);
  return Value::undefined(fmt::format(
      "the inline if-expression on line {} evaluated to false and no else section was defined.", expr.line));
}

Value Interpreter::evaluate_concat(const Expr& expr, const ScopePtr& scope) {
  std::string text;
  for (const ExprPtr& operand : expr.operands) {
    const Value value = evaluate(*operand, scope);
    const std::string part = to_string(rt_, value);
    rt_.charge(part.size());
    text += part;
  }
  return Value::string(rt_, std::move(text));
}

bool Interpreter::compare_one(Expr::Compare comparison, const Value& a, const Value& b) {
  switch (comparison) {
    case Expr::Compare::eq:
      return equal(rt_, a, b);
    case Expr::Compare::ne:
      return !equal(rt_, a, b);
    case Expr::Compare::in:
      return contains(rt_, b, a);
    case Expr::Compare::not_in:
      return !contains(rt_, b, a);
    case Expr::Compare::lt:
      return compare(rt_, a, b, "<") == -1;
    case Expr::Compare::gt:
      return compare(rt_, a, b, ">") == 1;
    case Expr::Compare::le: {
      const int order = compare(rt_, a, b, "<=");
      return order == -1 || order == 0;
    }
    case Expr::Compare::ge: {
      const int order = compare(rt_, a, b, ">=");
      return order == 1 || order == 0;
    }
  }
  return false;
}

Value Interpreter::evaluate_compare(const Expr& expr, const ScopePtr& scope) {
  Value left = evaluate(*expr.operands[0], scope);
  for (size_t i = 0; i < expr.comparisons.size(); ++i) {
    Value right = evaluate(*expr.operands[i + 1], scope);
    rt_.line = expr.line;
    if (!compare_one(expr.comparisons[i], left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

}  // namespace hayfork::engine::jinja
