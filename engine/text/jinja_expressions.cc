#include <algorithm>
#include <charconv>
#include <cstdlib>

#include <fmt/format.h>

#include "engine/text/jinja_parser.h"

namespace hayfork::engine::jinja {

using Op = Expr::Op;

ExprPtr Parser::make(Op op, int line) const {
  auto expr = std::make_unique<Expr>();
  expr->op = op;
  expr->line = line;
  return expr;
}

ExprPtr Parser::make(Op op, int line, std::vector<ExprPtr> operands) const {
  ExprPtr expr = make(op, line);
  for (ExprPtr& operand : operands) add_operand(*expr, std::move(operand));
  return expr;
}

void Parser::add_operand(Expr& expr, ExprPtr operand) const {
  if (operand) expr.depth = std::max(expr.depth, operand->depth + 1);
  if (expr.depth > kMaxTreeDepth) fail("an expression nested too deeply", expr.line);
  expr.operands.push_back(std::move(operand));
}

namespace {

template <typename... T>
std::vector<ExprPtr> operands(T... parts) {
  std::vector<ExprPtr> all;
  (all.push_back(std::move(parts)), ...);
  return all;
}

}  // namespace

ExprPtr Parser::parse_expression(bool with_condition) {
  const Nested nested(*this);
  return with_condition ? parse_condition() : parse_or();
}

ExprPtr Parser::parse_condition() {
  const Nested nested(*this);
  const int line = current().line;
  const size_t n_unknown = unknown_.size();
  ExprPtr expr = parse_or();
  while (skip_word("if")) {
    ExprPtr test = parse_or();
    ExprPtr otherwise = skip_word("else") ? parse_condition() : nullptr;
    expr = make(Op::condition, line, operands(std::move(test), std::move(expr), std::move(otherwise)));
    unknown_.resize(n_unknown);
  }
  return expr;
}

ExprPtr Parser::parse_or() {
  ExprPtr left = parse_and();
  while (is_word("or")) {
    const int line = next().line;
    left = make(Op::logical_or, line, operands(std::move(left), parse_and()));
  }
  return left;
}

ExprPtr Parser::parse_and() {
  ExprPtr left = parse_not();
  while (is_word("and")) {
    const int line = next().line;
    left = make(Op::logical_and, line, operands(std::move(left), parse_not()));
  }
  return left;
}

ExprPtr Parser::parse_not() {
  if (!is_word("not")) return parse_compare();
  const Nested nested(*this);
  const int line = next().line;
  return make(Op::logical_not, line, operands(parse_not()));
}

ExprPtr Parser::parse_compare() {
  constexpr std::string_view kOps[] = {"==", "!=", "<", "<=", ">", ">="};
  const int line = current().line;
  ExprPtr first = parse_sum();
  ExprPtr expr;
  const auto add = [&](Expr::Compare comparison) {
    if (!expr) expr = make(Op::compare, line, operands(std::move(first)));
    expr->comparisons.push_back(comparison);
    add_operand(*expr, parse_sum());
  };
  for (;;) {
    const auto* op = is(TokenKind::op) ? std::find(std::begin(kOps), std::end(kOps), current().text) : std::end(kOps);
    if (op != std::end(kOps)) {
      next();
      add(static_cast<Expr::Compare>(op - std::begin(kOps)));
    } else if (skip_word("in")) {
      add(Expr::Compare::in);
    } else if (is_word("not") && peek().kind == TokenKind::name && peek().text == "in") {
      next();
      next();
      add(Expr::Compare::not_in);
    } else {
      return expr ? std::move(expr) : std::move(first);
    }
  }
}

ExprPtr Parser::parse_sum() {
  ExprPtr left = parse_concat();
  while (is_op("+") || is_op("-")) {
    const Token& op = next();
    const BinaryOp kind = op.text == "+" ? BinaryOp::add : BinaryOp::sub;
    left = make(Op::binary, op.line, operands(std::move(left), parse_concat()));
    left->binary_op = kind;
  }
  return left;
}

ExprPtr Parser::parse_concat() {
  const int line = current().line;
  ExprPtr first = parse_product();
  if (!is_op("~")) return first;
  ExprPtr expr = make(Op::concat, line, operands(std::move(first)));
  while (skip_op("~")) add_operand(*expr, parse_product());
  return expr;
}

ExprPtr Parser::parse_product() {
  ExprPtr left = parse_power();
  for (;;) {
    BinaryOp kind;
    if (is_op("*"))
      kind = BinaryOp::mul;
    else if (is_op("/"))
      kind = BinaryOp::div;
    else if (is_op("//"))
      kind = BinaryOp::floordiv;
    else if (is_op("%"))
      kind = BinaryOp::mod;
    else
      return left;
    const int line = next().line;
    left = make(Op::binary, line, operands(std::move(left), parse_power()));
    left->binary_op = kind;
  }
}

ExprPtr Parser::parse_power() {
  ExprPtr left = parse_unary();
  while (is_op("**")) {
    const int line = next().line;
    left = make(Op::binary, line, operands(std::move(left), parse_unary()));
    left->binary_op = BinaryOp::pow;
  }
  return left;
}

ExprPtr Parser::parse_unary(bool with_filter) {
  const Nested nested(*this);
  ExprPtr expr;
  if (is_op("-") || is_op("+")) {
    const Op op = is_op("-") ? Op::negate : Op::positive;
    const int line = next().line;
    expr = make(op, line, operands(parse_unary(false)));
  } else {
    expr = parse_primary();
  }
  expr = parse_postfix(std::move(expr));
  return with_filter ? parse_filters_and_tests(std::move(expr)) : std::move(expr);
}

ExprPtr Parser::parse_primary(bool with_namespace) {
  const Nested nested(*this);
  const int line = current().line;
  switch (current().kind) {
    case TokenKind::name:
      return parse_name(with_namespace);
    case TokenKind::integer:
    case TokenKind::floating:
      return parse_number();
    case TokenKind::string: {
      std::string text;
      while (is(TokenKind::string)) text += next().text;  // adjacent literals are one
      ExprPtr expr = make(Op::constant, line);
      expr->value = Value::constant(std::move(text));
      return expr;
    }
    default:
      break;
  }
  if (skip_op("(")) {
    ExprPtr expr = parse_tuple(false, true, "", true, false);
    expect_op(")");
    return expr;
  }
  if (is_op("[")) return parse_list();
  if (is_op("{")) return parse_dict();
  fail(fmt::format("unexpected {}", describe(current())));
}

ExprPtr Parser::parse_name(bool with_namespace) {
  const Token& token = next();
  ExprPtr expr = make(Op::constant, token.line);
  const std::string& word = token.text;
  if (word == "true" || word == "True") {
    expr->value = Value(true);
  } else if (word == "false" || word == "False") {
    expr->value = Value(false);
  } else if (word != "none" && word != "None") {
    expr->op = Op::name;
    expr->name = word;
    if (word == "caller") special_.caller = true;
    if (word == "varargs") special_.varargs = true;
    if (word == "kwargs") special_.kwargs = true;
    if (with_namespace && skip_op(".")) {
      expr->op = Op::target_attribute;
      expr->value = Value::constant(expect_name());
    }
  }
  return expr;
}

ExprPtr Parser::parse_number() {
  const Token& token = next();
  ExprPtr expr = make(Op::constant, token.line);
  std::string_view text = token.text;
  if (token.kind == TokenKind::floating) {
    double d = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), d);
    if (result.ec == std::errc::result_out_of_range) d = std::strtod(token.text.c_str(), nullptr);
    expr->value = Value(d);
    return expr;
  }
  int base = 10;
  if (text.size() > 1 && text[0] == '0' && (text[1] | 0x20) >= 'a') {
    const char letter = static_cast<char>(text[1] | 0x20);
    base = letter == 'x' ? 16 : letter == 'o' ? 8 : 2;
    text.remove_prefix(2);
  }
  int64_t i = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), i, base).ec != std::errc())
    unsupported("an integer beyond 64 bits", token.line);
  expr->value = Value(i);
  return expr;
}

ExprPtr Parser::parse_tuple(bool simple, bool with_condition, std::string_view end_word, bool parenthesized,
                            bool with_namespace) {
  const Nested nested(*this);
  const int line = current().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  for (;;) {
    if (!items.empty()) expect_op(",");
    const bool ends = is(TokenKind::variable_end) || is(TokenKind::block_end) || is_op(")") ||
                      (!end_word.empty() && is_word(end_word));
    if (ends) break;
    items.push_back(simple ? parse_primary(with_namespace) : parse_expression(with_condition));
    if (!is_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items[0]);
  if (!is_tuple && !parenthesized) fail(fmt::format("Expected an expression, got {}", describe(current())));
  return make(Op::tuple, line, std::move(items));
}

ExprPtr Parser::parse_list() {
  ExprPtr expr = make(Op::list, current().line);
  expect_op("[");
  while (!is_op("]")) {
    if (!expr->operands.empty()) expect_op(",");
    if (is_op("]")) break;
    add_operand(*expr, parse_expression());
  }
  expect_op("]");
  return expr;
}

ExprPtr Parser::parse_dict() {
  ExprPtr expr = make(Op::dict, current().line);
  expect_op("{");
  while (!is_op("}")) {
    if (!expr->operands.empty()) expect_op(",");
    if (is_op("}")) break;
    add_operand(*expr, parse_expression());
    expect_op(":");
    add_operand(*expr, parse_expression());
  }
  expect_op("}");
  return expr;
}

ExprPtr Parser::parse_postfix(ExprPtr subject) {
  for (;;) {
    if (is_op(".") || is_op("["))
      subject = parse_subscript(std::move(subject));
    else if (is_op("("))
      subject = parse_call(std::move(subject));
    else
      return subject;
  }
}

ExprPtr Parser::parse_filters_and_tests(ExprPtr subject) {
  for (;;) {
    if (is_op("|"))
      subject = parse_filter(std::move(subject), false);
    else if (is_word("is"))
      subject = parse_test(std::move(subject));
    else if (is_op("("))
      subject = parse_call(std::move(subject));
    else
      return subject;
  }
}

ExprPtr Parser::parse_subscript(ExprPtr subject) {
  const int line = current().line;
  if (skip_op(".")) {
    if (is(TokenKind::integer)) return make(Op::item, line, operands(std::move(subject), parse_number()));
    if (!is(TokenKind::name)) fail("expected name or number");
    ExprPtr expr = make(Op::attribute, line, operands(std::move(subject)));
    expr->name = expect_name();
    return expr;
  }
  expect_op("[");
  std::vector<ExprPtr> parts;
  std::vector<ExprPtr> slice;
  bool is_slice = false;
  while (!is_op("]")) {
    if (!parts.empty()) expect_op(",");
    parts.push_back(parse_subscribed(slice, is_slice));
  }
  expect_op("]");
  if (is_slice) {
    if (parts.size() != 1) fail("a slice together with other indices", line);
    ExprPtr expr = make(Op::slice, line, operands(std::move(subject)));
    for (ExprPtr& part : slice) add_operand(*expr, std::move(part));
    return expr;
  }
  ExprPtr key = parts.size() == 1 ? std::move(parts[0]) : make(Op::tuple, line, std::move(parts));
  return make(Op::item, line, operands(std::move(subject), std::move(key)));
}

// One index, or the three parts of a slice.
ExprPtr Parser::parse_subscribed(std::vector<ExprPtr>& slice, bool& is_slice) {
  ExprPtr start;
  if (!is_op(":")) {
    start = parse_expression();
    if (!is_op(":")) return start;
  }
  if (is_slice) fail("two slices in one subscript");
  is_slice = true;
  const auto part = [&]() -> ExprPtr { return is_op(":") || is_op("]") || is_op(",") ? nullptr : parse_expression(); };
  expect_op(":");
  ExprPtr stop = part();
  ExprPtr step = skip_op(":") ? part() : nullptr;
  slice = operands(std::move(start), std::move(stop), std::move(step));
  return nullptr;
}

}  // namespace hayfork::engine::jinja
