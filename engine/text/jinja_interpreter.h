// Runs a parsed template over variables. One object per rendering; statements are in jinja_interpreter.cc, expressions
// in jinja_evaluate.cc, loops and macros in jinja_blocks.cc.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/jinja_ast.h"
#include "engine/text/jinja_value.h"

namespace hayfork::engine::jinja {

// Variables of one block; what is not here is looked for further out, assignments stay here.
class Scope {
 public:
  explicit Scope(std::shared_ptr<Scope> parent) : parent_(std::move(parent)) {}
  const Value* find(std::string_view name) const;
  void set(const std::string& name, Value value);
  void hide(const std::vector<std::string>& names);  // they are undefined from here inwards

 private:
  std::shared_ptr<Scope> parent_;
  std::vector<std::pair<std::string, Value>> variables_;  // few: searching beats hashing
};
using ScopePtr = std::shared_ptr<Scope>;

class Interpreter {
 public:
  // `max_output` is in bytes. The runtime must outlive the interpreter.
  Interpreter(Runtime& rt, size_t max_output)
      : rt_(rt), max_output_(max_output), root_(std::make_shared<Scope>(nullptr)) {}
  void define(const std::string& name, Value value) { root_->set(name, std::move(value)); }
  // Undefined values cannot be printed (Jinja's StrictUndefined) instead of being nothing.
  void refuse_undefined() { strict_ = true; }
  std::string run(const Template& parsed);

  enum class Flow : uint8_t { normal, break_, continue_ };

 private:
  friend class Macro;
  friend class Loop;

  // ---- statements ----
  Flow execute(const Body& body, const ScopePtr& scope, std::string& out);
  Flow execute(const Stmt& stmt, const ScopePtr& scope, std::string& out);
  void write(std::string& out, std::string_view text);
  void print(const Stmt& stmt, const ScopePtr& scope, std::string& out);
  Flow run_if(const Stmt& stmt, const ScopePtr& scope, std::string& out);
  void run_for(const Stmt& stmt, const Value& iterable, const ScopePtr& scope, int depth, std::string& out);
  void run_set_block(const Stmt& stmt, const ScopePtr& scope);
  Flow run_with(const Stmt& stmt, const ScopePtr& scope, std::string& out);
  void run_call_block(const Stmt& stmt, const ScopePtr& scope, std::string& out);
  void run_filter_block(const Stmt& stmt, const ScopePtr& scope, std::string& out);
  std::string run_inner(const Stmt& stmt, const ScopePtr& scope);  // its body in a scope of its own: the text
  static ScopePtr inner_scope(const Stmt& stmt, size_t body, const ScopePtr& scope);
  Value make_macro(const Stmt& stmt, const std::string& name, const ScopePtr& scope);
  void assign(const Expr& target, const Value& value, const ScopePtr& scope, const ScopePtr& lookup);

  // ---- expressions ----
  Value evaluate(const Expr& expr, const ScopePtr& scope);
  Value evaluate_name(const Expr& expr, const ScopePtr& scope);
  Value evaluate_container(const Expr& expr, const ScopePtr& scope);
  Value evaluate_slice(const Expr& expr, const ScopePtr& scope);
  Value evaluate_call(const Expr& expr, const ScopePtr& scope, const Value* caller);
  Value evaluate_filter(const Expr& expr, const ScopePtr& scope, const std::string* block_text);
  Value evaluate_test(const Expr& expr, const ScopePtr& scope);
  Value evaluate_condition(const Expr& expr, const ScopePtr& scope);
  Value evaluate_concat(const Expr& expr, const ScopePtr& scope);
  Value evaluate_compare(const Expr& expr, const ScopePtr& scope);
  bool compare_one(Expr::Compare comparison, const Value& a, const Value& b);
  Args evaluate_args(const CallArgs* args, const ScopePtr& scope);

  Runtime& rt_;
  const size_t max_output_;
  bool strict_ = false;
  size_t written_ = 0;  // bytes in all texts being written: the output, and those of macros and blocks under way
  ScopePtr root_;
};

}  // namespace hayfork::engine::jinja
