// The tree of a parsed template. Immutable after parsing; its depth is bounded, so walking and destroying it may
// recurse.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/jinja_library.h"
#include "engine/text/jinja_value.h"

namespace hayfork::engine::jinja {

inline constexpr int kMaxTreeDepth = 300;

struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using Body = std::vector<std::unique_ptr<Stmt>>;

struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> keyword;
  ExprPtr star;         // *expr
  ExprPtr double_star;  // **expr
};

struct Expr {
  enum class Op : uint8_t {
    constant,  // value
    name,      // name
    list,
    tuple,      // operands
    dict,       // operands: key, value, key, value, …
    attribute,  // operands[0].name
    item,       // operands[0][operands[1]]
    slice,      // operands[0][operands[1]:operands[2]:operands[3]], each of the last three may be null
    call,       // operands[0](args)
    filter,     // operands[0]|name(args); operands[0] null: the text of the block around
    test,       // operands[0] is name(args)
    logical_not,
    negate,
    positive,
    logical_and,
    logical_or,
    condition,         // operands[1] if operands[0] else operands[2], which may be null
    concat,            // operands
    binary,            // operands[0] binary_op operands[1]
    compare,           // operands[0] comparisons[0] operands[1] comparisons[1] …
    target_attribute,  // name.attribute as the target of set: operands empty, value the attribute's name
  };
  enum class Compare : uint8_t { eq, ne, lt, le, gt, ge, in, not_in };

  Op op;
  int line;
  int depth = 1;
  std::string name;
  Value value;
  std::vector<ExprPtr> operands;
  std::unique_ptr<CallArgs> args;
  std::vector<Compare> comparisons;
  BinaryOp binary_op = BinaryOp::add;
  Filter filter = nullptr;  // resolved; null: an error when it is evaluated
  Test test = nullptr;
};

struct Parameter {
  std::string name;
  ExprPtr fallback;
};

struct Stmt {
  enum class Kind : uint8_t {
    text,          // text
    print,         // exprs
    if_,           // branches: (exprs[i], bodies[i]), then bodies.back() as else when there is one more
    for_,          // target in exprs[0] if exprs[1]; bodies[0], else bodies[1]
    set,           // target = exprs[0]
    set_block,     // target = filter exprs[0] (may be null) over bodies[0]
    with,          // targets = exprs, bodies[0]
    macro,         // name, parameters, bodies[0]
    call_block,    // exprs[0] is the call; parameters and bodies[0] are the caller's
    filter_block,  // exprs[0] over bodies[0]
    block,
    generation,  // bodies[0]
    break_,
    continue_,
  };

  Kind kind;
  int line;
  std::string text;
  std::string name;
  std::vector<ExprPtr> exprs;
  std::vector<ExprPtr> targets;
  std::vector<Parameter> parameters;
  std::vector<Body> bodies;
  std::vector<std::vector<std::string>> hidden;  // per body: names that are undefined when it begins (jinja_symbols.cc)
  bool recursive = false;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;  // of a macro or caller: named in its body
};

struct Template {
  Body body;
  std::vector<std::string> hidden;
};

// Throws: Error(corrupt, model) for broken syntax, Error(unsupported, model) for a tag, filter or test unknown here.
Template parse_template(std::string_view source, const std::string& name);

// Fills in every `hidden`.
void resolve_hidden_names(Template& parsed);

}  // namespace hayfork::engine::jinja
