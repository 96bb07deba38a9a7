// Jinja compiles a block's variables to locals: a name that a block assigns before it reads it, and that no block
// around names, is undefined for inner blocks until then, even when the caller gave a variable of that name
// ({% for x in y %}{{ a }}{% endfor %}{% set a = 1 %} never prints the caller's a). The names concerned are found here,
// in the order in which jinja2.idtracking visits the tree, and hidden when the block begins.
#include <algorithm>
#include <map>
#include <set>

#include "engine/text/jinja_ast.h"

namespace hayfork::engine::jinja {
namespace {

// The names one block knows; true: its first use was an assignment.
struct Symbols {
  const Symbols* parent = nullptr;
  std::map<std::string, bool> hidden;
  std::set<std::string> stores;

  bool knows(const std::string& name) const {
    for (const Symbols* s = this; s; s = s->parent) {
      if (s->hidden.contains(name)) return true;
    }
    return false;
  }
  void load(const std::string& name) {
    if (!knows(name)) hidden[name] = false;
  }
  void store(const std::string& name) {
    stores.insert(name);
    if (!hidden.contains(name)) hidden[name] = !(parent && parent->knows(name));
  }
  void declare(const std::string& name) {
    stores.insert(name);
    hidden[name] = false;
  }
};

void visit_body(const Body& body, Symbols& symbols);

void visit(const Expr* expr, Symbols& symbols) {
  if (!expr) return;
  if (expr->op == Expr::Op::name || expr->op == Expr::Op::target_attribute) symbols.load(expr->name);
  for (const ExprPtr& operand : expr->operands) visit(operand.get(), symbols);
  if (!expr->args) return;
  for (const ExprPtr& arg : expr->args->positional) visit(arg.get(), symbols);
  for (const auto& [key, arg] : expr->args->keyword) visit(arg.get(), symbols);
  visit(expr->args->star.get(), symbols);
  visit(expr->args->double_star.get(), symbols);
}

void visit_target(const Expr& target, Symbols& symbols, bool as_parameter) {
  if (target.op == Expr::Op::target_attribute)
    symbols.load(target.name);
  else if (target.op == Expr::Op::tuple)
    for (const ExprPtr& part : target.operands) visit_target(*part, symbols, as_parameter);
  else if (as_parameter)
    symbols.declare(target.name);
  else
    symbols.store(target.name);
}

// A name assigned in some but not all of if, elif and else keeps the value from outside.
void merge(Symbols& symbols, const std::vector<Symbols>& branches) {
  std::map<std::string, size_t> counts;
  for (const Symbols& branch : branches) {
    for (const std::string& name : branch.stores) {
      if (!symbols.stores.contains(name)) ++counts[name];
    }
  }
  for (const Symbols& branch : branches) {
    for (const auto& [name, hidden] : branch.hidden) symbols.hidden[name] = hidden;
    symbols.stores.insert(branch.stores.begin(), branch.stores.end());
  }
  for (const auto& [name, count] : counts) {
    if (count < branches.size()) symbols.hidden[name] = false;
  }
}

void visit_if(const Stmt& stmt, Symbols& symbols) {
  visit(stmt.exprs[0].get(), symbols);
  std::vector<Symbols> branches(3, symbols);
  visit_body(stmt.bodies[0], branches[0]);
  for (size_t i = 1; i < stmt.exprs.size(); ++i) {  // each elif is an if of its own without else
    visit(stmt.exprs[i].get(), branches[1]);
    std::vector<Symbols> inner(3, branches[1]);
    visit_body(stmt.bodies[i], inner[0]);
    merge(branches[1], inner);
  }
  if (stmt.bodies.size() > stmt.exprs.size()) visit_body(stmt.bodies.back(), branches[2]);
  merge(symbols, branches);
}

void visit_stmt(const Stmt& stmt, Symbols& symbols) {
  switch (stmt.kind) {
    case Stmt::Kind::if_:
      return visit_if(stmt, symbols);
    case Stmt::Kind::for_:
      return visit(stmt.exprs[0].get(), symbols);
    case Stmt::Kind::set:
      visit(stmt.exprs[0].get(), symbols);
      [[fallthrough]];
    case Stmt::Kind::set_block:
      return visit_target(*stmt.targets[0], symbols, false);
    case Stmt::Kind::macro:
      return symbols.store(stmt.name);
    default:
      break;
  }
  for (const ExprPtr& expr : stmt.exprs) visit(expr.get(), symbols);
}

void visit_body(const Body& body, Symbols& symbols) {
  for (const auto& stmt : body) visit_stmt(*stmt, symbols);
}

std::vector<std::string> hidden_names(const Symbols& symbols) {
  std::vector<std::string> names;
  for (const auto& [name, hidden] : symbols.hidden) {
    if (hidden) names.push_back(name);
  }
  return names;
}

void resolve_inner(const Body& body, const Symbols& symbols);

// A body with variables of its own.
void resolve_block(Stmt& stmt, size_t body, const Symbols* parent) {
  Symbols symbols;
  symbols.parent = parent;
  if (stmt.kind == Stmt::Kind::with || (stmt.kind == Stmt::Kind::for_ && body == 0)) {
    for (const ExprPtr& target : stmt.targets) visit_target(*target, symbols, true);
  }
  if (stmt.kind == Stmt::Kind::for_ && body == 0) symbols.declare("loop");
  for (const Parameter& parameter : stmt.parameters) symbols.declare(parameter.name);
  for (const Parameter& parameter : stmt.parameters) visit(parameter.fallback.get(), symbols);
  if (stmt.kind == Stmt::Kind::macro || stmt.kind == Stmt::Kind::call_block) {
    for (const char* name : {"caller", "kwargs", "varargs"}) symbols.declare(name);
  }
  visit_body(stmt.bodies[body], symbols);
  stmt.hidden.push_back(hidden_names(symbols));
  resolve_inner(stmt.bodies[body], symbols);
}

void resolve_inner(const Body& body, const Symbols& symbols) {
  for (const auto& stmt : body) {
    for (size_t i = 0; i < stmt->bodies.size(); ++i) {
      if (stmt->kind == Stmt::Kind::if_)
        resolve_inner(stmt->bodies[i], symbols);
      else
        resolve_block(*stmt, i, stmt->kind == Stmt::Kind::block ? nullptr : &symbols);
    }
  }
}

}  // namespace

void resolve_hidden_names(Template& parsed) {
  Symbols symbols;
  visit_body(parsed.body, symbols);
  parsed.hidden = hidden_names(symbols);
  resolve_inner(parsed.body, symbols);
}

}  // namespace hayfork::engine::jinja
