#include "engine/text/jinja_parser.h"

#include <fmt/format.h>

#include "base/utf8.h"

namespace hayfork::engine::jinja {
namespace {

std::unique_ptr<Stmt> make_stmt(Stmt::Kind kind, int line) {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = kind;
  stmt->line = line;
  return stmt;
}

}  // namespace

bool Parser::skip_op(std::string_view op) {
  if (!is_op(op)) return false;
  next();
  return true;
}

bool Parser::skip_word(std::string_view word) {
  if (!is_word(word)) return false;
  next();
  return true;
}

void Parser::expect_op(std::string_view op) {
  if (!skip_op(op)) fail(fmt::format("expected '{}', got {}", op, describe(current())));
}

void Parser::expect_word(std::string_view word) {
  if (!skip_word(word)) fail(fmt::format("expected '{}', got {}", word, describe(current())));
}

std::string Parser::expect_name() {
  if (!is(TokenKind::name)) fail(fmt::format("expected a name, got {}", describe(current())));
  return next().text;
}

void Parser::expect(TokenKind kind) {
  if (!is(kind)) fail(fmt::format("expected {}, got {}", describe({kind, "", 0}), describe(current())));
  next();
}

std::string Parser::describe(const Token& token) const {
  switch (token.kind) {
    case TokenKind::data:
      return "template text";
    case TokenKind::variable_begin:
      return "'{{'";
    case TokenKind::variable_end:
      return "'}}'";
    case TokenKind::block_begin:
      return "'{%'";
    case TokenKind::block_end:
      return "'%}'";
    case TokenKind::string:
      return "a string";
    case TokenKind::end:
      return "the end of the template";
    default:
      return fmt::format("'{}'", printable(token.text.substr(0, 80)));
  }
}

void Parser::fail(const std::string& why, int line) const {
  throw Error(ErrorCode::corrupt, ErrorSubject::model, "the chat template is not valid Jinja",
              {.where = fmt::format("{}, line {}", name_, line), .why = why});
}

void Parser::unsupported(const std::string& what, int line) const {
  throw Error(ErrorCode::unsupported, ErrorSubject::model,
              fmt::format("the chat template uses {}, which is not supported", what),
              {.where = fmt::format("{}, line {}", name_, line)});
}

Body Parser::run() {
  Body body = parse_until({});
  if (!unknown_.empty()) unsupported(printable(unknown_[0].what), unknown_[0].line);
  return body;
}

Body Parser::parse_until(const std::vector<std::string_view>& ends) {
  const Nested nested(*this);
  Body body;
  for (;;) {
    const int line = current().line;
    if (is(TokenKind::data)) {
      body.push_back(make_stmt(Stmt::Kind::text, line));
      body.back()->text = next().text;
    } else if (is(TokenKind::variable_begin)) {
      next();
      body.push_back(make_stmt(Stmt::Kind::print, line));
      body.back()->exprs.push_back(parse_full_tuple());
      expect(TokenKind::variable_end);
    } else if (is(TokenKind::block_begin)) {
      next();
      for (const std::string_view end : ends) {
        if (is_word(end)) return body;
      }
      body.push_back(parse_statement());
      expect(TokenKind::block_end);
    } else {
      if (!ends.empty()) fail(fmt::format("Unexpected end of template: '{}' is missing", ends.back()));
      return body;
    }
  }
}

Body Parser::parse_body(const std::vector<std::string_view>& ends) {
  skip_op(":");
  expect(TokenKind::block_end);
  return parse_until(ends);
}

std::unique_ptr<Stmt> Parser::parse_statement() {
  if (!is(TokenKind::name)) fail(fmt::format("tag name expected, got {}", describe(current())));
  const Token& tag = next();
  const int line = tag.line;
  if (tag.text == "set") return parse_set(line);
  if (tag.text == "for") return parse_for(line);
  if (tag.text == "if") return parse_if(line);
  if (tag.text == "with") return parse_with(line);
  if (tag.text == "macro") return parse_macro(line);
  if (tag.text == "call") return parse_call_block(line);
  if (tag.text == "filter") return parse_filter_block(line);
  if (tag.text == "block") return parse_block(line);
  if (tag.text == "print") return parse_print(line);
  if (tag.text == "generation") {
    auto stmt = make_stmt(Stmt::Kind::generation, line);
    stmt->bodies.push_back(parse_body({"endgeneration"}));
    next();
    return stmt;
  }
  if (tag.text == "break") return parse_simple(Stmt::Kind::break_, line);
  if (tag.text == "continue") return parse_simple(Stmt::Kind::continue_, line);
  for (const std::string_view known : {"autoescape", "extends", "include", "import", "from"}) {
    if (tag.text == known) unsupported(fmt::format("the tag {}", known), line);
  }
  for (const std::string_view closing : {"else", "elif", "endif", "endfor", "endset", "endmacro", "endcall",
                                         "endfilter", "endwith", "endblock", "endgeneration", "endraw"}) {
    if (tag.text == closing) fail(fmt::format("the tag '{}' closes nothing that is open here", closing), line);
  }
  unsupported(fmt::format("the tag {}", printable(tag.text.substr(0, 80))), line);
}

ExprPtr Parser::parse_target(bool with_namespace, std::string_view end_word) {
  ExprPtr target = parse_tuple(true, false, end_word, false, with_namespace);
  const auto check = [&](const auto& self, const Expr& expr) -> void {
    if (expr.op == Expr::Op::tuple) {
      for (const ExprPtr& part : expr.operands) self(self, *part);
    } else if (expr.op != Expr::Op::name && expr.op != Expr::Op::target_attribute) {
      fail("can't assign to this", expr.line);
    }
  };
  check(check, *target);
  return target;
}

std::unique_ptr<Stmt> Parser::parse_set(int line) {
  auto stmt = make_stmt(Stmt::Kind::set, line);
  stmt->targets.push_back(parse_target(true, ""));
  if (skip_op("=")) {
    stmt->exprs.push_back(parse_full_tuple());
    return stmt;
  }
  stmt->kind = Stmt::Kind::set_block;
  stmt->exprs.push_back(parse_filter(nullptr, false));
  stmt->bodies.push_back(parse_body({"endset"}));
  next();
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_for(int line) {
  auto stmt = make_stmt(Stmt::Kind::for_, line);
  stmt->targets.push_back(parse_target(false, "in"));
  const auto names_loop = [](const auto& self, const Expr& target) -> bool {
    for (const ExprPtr& part : target.operands) {
      if (self(self, *part)) return true;
    }
    return target.name == "loop";
  };
  if (names_loop(names_loop, *stmt->targets[0])) fail("Can't assign to special loop variable in for-loop target", line);
  expect_word("in");
  stmt->exprs.push_back(parse_tuple(false, false, "recursive", false, false));
  stmt->exprs.push_back(skip_word("if") ? parse_expression() : nullptr);
  stmt->recursive = skip_word("recursive");
  ++loops_;
  stmt->bodies.push_back(parse_body({"else", "endfor"}));
  --loops_;
  if (next().text == "else") {
    stmt->bodies.push_back(parse_body({"endfor"}));
    next();
  }
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_if(int line) {
  auto stmt = make_stmt(Stmt::Kind::if_, line);
  const size_t n_unknown = unknown_.size();
  for (;;) {
    stmt->exprs.push_back(parse_tuple(false, false, "", false, false));
    stmt->bodies.push_back(parse_body({"elif", "else", "endif"}));
    const std::string word = next().text;
    if (word == "elif") continue;
    if (word == "else") {
      stmt->bodies.push_back(parse_body({"endif"}));
      next();
    }
    unknown_.resize(n_unknown);
    return stmt;
  }
}

std::unique_ptr<Stmt> Parser::parse_with(int line) {
  auto stmt = make_stmt(Stmt::Kind::with, line);
  while (!is(TokenKind::block_end)) {
    if (!stmt->targets.empty()) expect_op(",");
    stmt->targets.push_back(parse_target(false, ""));
    expect_op("=");
    stmt->exprs.push_back(parse_expression());
  }
  stmt->bodies.push_back(parse_body({"endwith"}));
  next();
  return stmt;
}

void Parser::parse_signature(Stmt& stmt) {
  expect_op("(");
  while (!is_op(")")) {
    if (!stmt.parameters.empty()) expect_op(",");
    Parameter parameter{expect_name(), nullptr};
    if (skip_op("="))
      parameter.fallback = parse_expression();
    else if (!stmt.parameters.empty() && stmt.parameters.back().fallback)
      fail("non-default argument follows default argument");
    stmt.parameters.push_back(std::move(parameter));
  }
  expect_op(")");
}

void Parser::parse_macro_body(Stmt& stmt, std::string_view end) {
  const Special outer = std::exchange(special_, {});
  const int loops = std::exchange(loops_, 0);
  stmt.bodies.push_back(parse_body({end}));
  next();
  stmt.uses_caller = special_.caller;
  stmt.uses_varargs = special_.varargs;
  stmt.uses_kwargs = special_.kwargs;
  special_ = {outer.caller || special_.caller, outer.varargs || special_.varargs, outer.kwargs || special_.kwargs};
  loops_ = loops;
}

std::unique_ptr<Stmt> Parser::parse_macro(int line) {
  auto stmt = make_stmt(Stmt::Kind::macro, line);
  stmt->name = expect_name();
  parse_signature(*stmt);
  parse_macro_body(*stmt, "endmacro");
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_call_block(int line) {
  auto stmt = make_stmt(Stmt::Kind::call_block, line);
  if (is_op("(")) parse_signature(*stmt);
  stmt->exprs.push_back(parse_expression());
  if (stmt->exprs[0]->op != Expr::Op::call) fail("expected call", line);
  parse_macro_body(*stmt, "endcall");
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_filter_block(int line) {
  auto stmt = make_stmt(Stmt::Kind::filter_block, line);
  stmt->exprs.push_back(parse_filter(nullptr, true));
  stmt->bodies.push_back(parse_body({"endfilter"}));
  next();
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_block(int line) {
  auto stmt = make_stmt(Stmt::Kind::block, line);
  stmt->name = expect_name();
  stmt->recursive = skip_word("scoped");  // sees the variables around it
  if (is_word("required")) unsupported("a required block", line);
  const int loops = std::exchange(loops_, 0);
  stmt->bodies.push_back(parse_body({"endblock"}));
  loops_ = loops;
  next();
  skip_word(stmt->name);
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_print(int line) {
  auto stmt = make_stmt(Stmt::Kind::print, line);
  while (!is(TokenKind::block_end)) {
    if (!stmt->exprs.empty()) expect_op(",");
    stmt->exprs.push_back(parse_expression());
  }
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_simple(Stmt::Kind kind, int line) {
  if (loops_ == 0) fail("break and continue belong in a loop", line);
  return make_stmt(kind, line);
}

Template parse_template(std::string_view source, const std::string& name, Rules rules) {
  Template parsed{Parser(tokenize(source, name, rules), name).run(), {}};
  resolve_hidden_names(parsed);
  return parsed;
}

Template parse_template(std::string_view source, const std::string& name) {
  return parse_template(source, name, Rules::chat);
}

}  // namespace hayfork::engine::jinja
