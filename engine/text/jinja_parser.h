// Recursive descent over the tokens, with Jinja's precedences. Expressions are parsed in jinja_expressions.cc
// and jinja_calls.cc, statements in jinja_parser.cc.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/jinja_ast.h"
#include "engine/text/jinja_lexer.h"

namespace hayfork::engine::jinja {

// Levels of recursion; a pair of brackets takes five.
inline constexpr int kMaxNesting = 1000;

class Parser {
 public:
  Parser(std::vector<Token> tokens, const std::string& name) : tokens_(std::move(tokens)), name_(name) {}
  Body run();

 private:
  // What a macro's body may name to get more than its parameters.
  struct Special {
    bool caller = false, varargs = false, kwargs = false;
  };
  class Nested;  // counts recursion

  // ---- tokens ----
  const Token& current() const { return tokens_[at_]; }
  const Token& peek() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool is(TokenKind kind) const { return current().kind == kind; }
  bool is_op(std::string_view op) const { return is(TokenKind::op) && current().text == op; }
  bool is_word(std::string_view word) const { return is(TokenKind::name) && current().text == word; }
  bool skip_op(std::string_view op);
  bool skip_word(std::string_view word);
  void expect_op(std::string_view op);
  void expect_word(std::string_view word);
  std::string expect_name();
  void expect(TokenKind kind);
  std::string describe(const Token& token) const;
  [[noreturn]] void fail(const std::string& why, int line) const;
  [[noreturn]] void fail(const std::string& why) const { fail(why, current().line); }
  [[noreturn]] void unsupported(const std::string& what, int line) const;

  // ---- statements ----
  Body parse_until(const std::vector<std::string_view>& ends);  // stops at the end word, which is not consumed
  Body parse_body(const std::vector<std::string_view>& ends);   // from the closing of the opening tag
  std::unique_ptr<Stmt> parse_statement();
  std::unique_ptr<Stmt> parse_set(int line);
  std::unique_ptr<Stmt> parse_for(int line);
  std::unique_ptr<Stmt> parse_if(int line);
  std::unique_ptr<Stmt> parse_with(int line);
  std::unique_ptr<Stmt> parse_macro(int line);
  std::unique_ptr<Stmt> parse_call_block(int line);
  std::unique_ptr<Stmt> parse_filter_block(int line);
  std::unique_ptr<Stmt> parse_block(int line);
  std::unique_ptr<Stmt> parse_print(int line);
  std::unique_ptr<Stmt> parse_simple(Stmt::Kind kind, int line);
  void parse_signature(Stmt& stmt);
  void parse_macro_body(Stmt& stmt, std::string_view end);
  ExprPtr parse_target(bool with_namespace, std::string_view end_word);

  // ---- expressions ----
  ExprPtr make(Expr::Op op, int line) const;
  ExprPtr make(Expr::Op op, int line, std::vector<ExprPtr> operands) const;
  ExprPtr wrap(Expr::Op op, int line, ExprPtr operand) const;
  void add_operand(Expr& expr, ExprPtr operand) const;
  ExprPtr parse_expression(bool with_condition = true);
  ExprPtr parse_condition();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filter = true);
  ExprPtr parse_primary(bool with_namespace = false);
  ExprPtr parse_name(bool with_namespace);
  ExprPtr parse_number();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  // A lone expression, or a tuple when commas follow. `end_word` ends it, as the closing marks do.
  ExprPtr parse_tuple(bool simple, bool with_condition, std::string_view end_word, bool parenthesized,
                      bool with_namespace);
  ExprPtr parse_full_tuple() { return parse_tuple(false, true, "", false, false); }
  ExprPtr parse_postfix(ExprPtr subject);
  ExprPtr parse_filters_and_tests(ExprPtr subject);
  ExprPtr parse_subscript(ExprPtr subject);
  ExprPtr parse_subscribed(std::vector<ExprPtr>& slice, bool& is_slice);
  std::unique_ptr<CallArgs> parse_call_args(Expr& owner);
  ExprPtr parse_call(ExprPtr subject);
  ExprPtr parse_filter(ExprPtr subject, bool inline_start);
  ExprPtr parse_test(ExprPtr subject);
  std::string parse_dotted_name();

  std::vector<Token> tokens_;
  const std::string& name_;
  size_t at_ = 0;
  int nesting_ = 0;
  // Unknown filters and tests. Those inside an if are taken out again: they are errors only when reached, as in Jinja.
  struct Unknown {
    std::string what;
    int line = 0;
  };
  std::vector<Unknown> unknown_;
  int loops_ = 0;
  Special special_;
};

class Parser::Nested {
 public:
  explicit Nested(Parser& parser) : parser_(parser) {
    if (++parser.nesting_ > kMaxNesting) parser.fail("nested too deeply");
  }
  ~Nested() { --parser_.nesting_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

 private:
  Parser& parser_;
};

// parse_template of jinja_ast.h under other rules.
Template parse_template(std::string_view source, const std::string& name, Rules rules);

}  // namespace hayfork::engine::jinja
