// Calls, filters and tests.
#include <algorithm>

#include "engine/text/jinja_parser.h"

namespace hayfork::engine::jinja {

using Op = Expr::Op;

ExprPtr Parser::wrap(Expr::Op op, int line, ExprPtr operand) const {
  ExprPtr expr = make(op, line);
  add_operand(*expr, std::move(operand));
  return expr;
}

std::unique_ptr<CallArgs> Parser::parse_call_args(Expr& owner) {
  const int line = current().line;
  expect_op("(");
  auto args = std::make_unique<CallArgs>();
  const auto take = [&] {
    ExprPtr value = parse_expression();
    owner.depth = std::max(owner.depth, value->depth + 1);
    if (owner.depth > kMaxTreeDepth) fail("an expression nested too deeply", line);
    return value;
  };
  const auto ensure = [&](bool good) {
    if (!good) fail("invalid syntax for function call expression", line);
  };
  for (bool first = true; !is_op(")"); first = false) {
    if (!first) {
      expect_op(",");
      if (is_op(")")) break;
    }
    if (skip_op("*")) {
      ensure(!args->star && !args->double_star);
      args->star = take();
    } else if (skip_op("**")) {
      ensure(!args->double_star);
      args->double_star = take();
    } else if (is(TokenKind::name) && peek().kind == TokenKind::op && peek().text == "=") {
      ensure(!args->double_star);
      std::string key = expect_name();
      next();
      args->keyword.emplace_back(std::move(key), take());
    } else {
      ensure(!args->star && !args->double_star && args->keyword.empty());
      args->positional.push_back(take());
    }
  }
  expect_op(")");
  return args;
}

ExprPtr Parser::parse_call(ExprPtr subject) {
  ExprPtr expr = wrap(Op::call, current().line, std::move(subject));
  expr->args = parse_call_args(*expr);
  return expr;
}

std::string Parser::parse_dotted_name() {
  std::string name = expect_name();
  while (skip_op(".")) name += "." + expect_name();
  return name;
}

ExprPtr Parser::parse_filter(ExprPtr subject, bool inline_start) {
  while (is_op("|") || inline_start) {
    if (!inline_start) next();
    inline_start = false;
    const int line = current().line;
    ExprPtr expr = wrap(Op::filter, line, std::move(subject));
    expr->name = parse_dotted_name();
    expr->filter = find_filter(expr->name);
    if (!expr->filter) unknown_.push_back({"the filter " + expr->name, line});
    if (is_op("(")) expr->args = parse_call_args(*expr);
    subject = std::move(expr);
  }
  return subject;
}

ExprPtr Parser::parse_test(ExprPtr subject) {
  const int line = next().line;
  const bool negated = skip_word("not");
  ExprPtr expr = wrap(Op::test, line, std::move(subject));
  expr->name = parse_dotted_name();
  expr->test = find_test(expr->name);
  if (!expr->test) unknown_.push_back({"the test " + expr->name, line});
  const bool operand_follows = is(TokenKind::name) || is(TokenKind::string) || is(TokenKind::integer) ||
                               is(TokenKind::floating) || is_op("[") || is_op("{");
  if (is_op("(")) {
    expr->args = parse_call_args(*expr);
  } else if (operand_follows && !is_word("else") && !is_word("or") && !is_word("and")) {
    if (is_word("is")) fail("You cannot chain multiple tests with is");
    expr->args = std::make_unique<CallArgs>();
    expr->args->positional.push_back(parse_postfix(parse_primary()));
    expr->depth = std::max(expr->depth, expr->args->positional[0]->depth + 1);
  }
  return negated ? wrap(Op::logical_not, line, std::move(expr)) : std::move(expr);
}

}  // namespace hayfork::engine::jinja
