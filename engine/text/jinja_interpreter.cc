#include "engine/text/jinja_interpreter.h"

#include <fmt/format.h>

#include "engine/text/jinja_text.h"

namespace hayfork::engine::jinja {

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope; scope = scope->parent_.get()) {
    for (const auto& [key, value] : scope->variables_) {
      if (key == name) return &value;
    }
  }
  return nullptr;
}

void Scope::set(const std::string& name, Value value) {
  for (auto& [key, old] : variables_) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  variables_.emplace_back(name, std::move(value));
}

void Scope::hide(const std::vector<std::string>& names) {
  for (const std::string& name : names)
    variables_.emplace_back(name, Value::undefined(fmt::format("'{}' is undefined", name)));
}

std::string Interpreter::run(const Template& parsed) {
  // The caller's variables lie outside of the template's own.
  const auto scope = std::make_shared<Scope>(root_);
  scope->hide(parsed.hidden);
  root_ = scope;
  std::string out;
  execute(parsed.body, root_, out);
  return out;
}

ScopePtr Interpreter::inner_scope(const Stmt& stmt, size_t body, const ScopePtr& scope) {
  auto inner = std::make_shared<Scope>(scope);
  inner->hide(stmt.hidden[body]);
  return inner;
}

void Interpreter::write(std::string& out, std::string_view text) {
  if ((written_ += text.size()) > max_output_) rt_.out_of("output");
  rt_.step(1 + static_cast<int64_t>(text.size() / 64));
  out += text;
}

Interpreter::Flow Interpreter::execute(const Body& body, const ScopePtr& scope, std::string& out) {
  for (const auto& stmt : body) {
    const size_t passing = rt_.passing();
    const Flow flow = execute(*stmt, scope, out);
    rt_.end_statement(passing);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute(const Stmt& stmt, const ScopePtr& scope, std::string& out) {
  const Runtime::Level level(rt_);
  rt_.step();
  rt_.line = stmt.line;
  switch (stmt.kind) {
    case Stmt::Kind::text:
      write(out, stmt.text);
      break;
    case Stmt::Kind::print:
      print(stmt, scope, out);
      break;
    case Stmt::Kind::if_:
      return run_if(stmt, scope, out);
    case Stmt::Kind::for_:
      run_for(stmt, evaluate(*stmt.exprs[0], scope), scope, 0, out);
      break;
    case Stmt::Kind::set:
      assign(*stmt.targets[0], evaluate(*stmt.exprs[0], scope), scope, scope);
      break;
    case Stmt::Kind::set_block:
      run_set_block(stmt, scope);
      break;
    case Stmt::Kind::with:
      return run_with(stmt, scope, out);
    case Stmt::Kind::macro:
      scope->set(stmt.name, make_macro(stmt, stmt.name, scope));
      break;
    case Stmt::Kind::call_block:
      run_call_block(stmt, scope, out);
      break;
    case Stmt::Kind::filter_block:
      run_filter_block(stmt, scope, out);
      break;
    case Stmt::Kind::block:
      write(out, run_inner(stmt, stmt.recursive ? scope : root_));
      break;
    case Stmt::Kind::generation:
      write(out, run_inner(stmt, scope));
      break;
    case Stmt::Kind::break_:
      return Flow::break_;
    case Stmt::Kind::continue_:
      return Flow::continue_;
  }
  return Flow::normal;
}

void Interpreter::print(const Stmt& stmt, const ScopePtr& scope, std::string& out) {
  for (const ExprPtr& expr : stmt.exprs) {
    const Value value = evaluate(*expr, scope);
    if (strict_ && value.is(Kind::undefined)) rt_.fail(value.text());
    if (value.is(Kind::string))
      write(out, value.text());
    else
      write(out, to_string(rt_, value));
  }
}

Interpreter::Flow Interpreter::run_if(const Stmt& stmt, const ScopePtr& scope, std::string& out) {
  for (size_t i = 0; i < stmt.exprs.size(); ++i) {
    if (truth(evaluate(*stmt.exprs[i], scope))) return execute(stmt.bodies[i], scope, out);
  }
  return stmt.bodies.size() > stmt.exprs.size() ? execute(stmt.bodies.back(), scope, out) : Flow::normal;
}

void Interpreter::run_set_block(const Stmt& stmt, const ScopePtr& scope) {
  const std::string text = run_inner(stmt, scope);
  const Value value = stmt.exprs[0] ? evaluate_filter(*stmt.exprs[0], scope, &text) : Value::string(rt_, text);
  assign(*stmt.targets[0], value, scope, scope);
}

Interpreter::Flow Interpreter::run_with(const Stmt& stmt, const ScopePtr& scope, std::string& out) {
  const ScopePtr inner = inner_scope(stmt, 0, scope);
  // All values are taken from outside: a name set by this tag is not seen by the ones after it.
  Values values;
  for (const ExprPtr& expr : stmt.exprs) values.push_back(evaluate(*expr, scope));
  for (size_t i = 0; i < values.size(); ++i) assign(*stmt.targets[i], values[i], inner, inner);
  return execute(stmt.bodies[0], inner, out);
}

void Interpreter::run_filter_block(const Stmt& stmt, const ScopePtr& scope, std::string& out) {
  const std::string text = run_inner(stmt, scope);
  write(out, to_string(rt_, evaluate_filter(*stmt.exprs[0], scope, &text)));
}

std::string Interpreter::run_inner(const Stmt& stmt, const ScopePtr& scope) {
  std::string text;
  execute(stmt.bodies[0], inner_scope(stmt, 0, scope), text);
  written_ -= text.size();
  rt_.charge(text.size());
  return text;
}

void Interpreter::assign(const Expr& target, const Value& value, const ScopePtr& scope, const ScopePtr& lookup) {
  if (target.op == Expr::Op::name) {
    scope->set(target.name, value);
    return;
  }
  if (target.op == Expr::Op::target_attribute) {
    const Value* object = lookup->find(target.name);
    auto* space = object && object->is(Kind::object) ? dynamic_cast<Namespace*>(&object->object()) : nullptr;
    if (!space) rt_.fail("cannot assign attribute on non-namespace object");
    space->set(rt_, target.value.text(), value);
    return;
  }
  const Values parts = to_items(rt_, value);
  const size_t n = target.operands.size();
  if (parts.size() > n) rt_.fail(fmt::format("too many values to unpack (expected {})", n));
  if (parts.size() < n) rt_.fail(fmt::format("not enough values to unpack (expected {}, got {})", n, parts.size()));
  for (size_t i = 0; i < n; ++i) assign(*target.operands[i], parts[i], scope, lookup);
}

}  // namespace hayfork::engine::jinja
