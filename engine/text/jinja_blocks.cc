// Loops and macros.
#include <fmt/format.h>

#include "engine/text/jinja_interpreter.h"

namespace hayfork::engine::jinja {

// The variable `loop`. It looks one item ahead when asked for what comes next, as Jinja's does.
class Loop : public Object {
 public:
  Loop(Interpreter& interpreter, const Stmt& stmt, ScopePtr scope, const Value& iterable,
       std::function<bool(Value&)> next, int depth_of_loop)
      : interpreter_(interpreter),
        stmt_(stmt),
        scope_(std::move(scope)),
        next_(std::move(next)),
        depth_(depth_of_loop) {
    if (!stmt.exprs[1]) length_ = length_if_sized(iterable);  // a filtered loop has no length before it is run
  }

  std::string type_name() const override { return "LoopContext"; }
  std::string repr(Runtime& rt) override { return fmt::format("<LoopContext {}/{}>", index0_ + 1, length(rt)); }

  bool advance(Value& item) {
    if (ahead_)
      item = *std::exchange(ahead_, std::nullopt);
    else if (!pull(item))
      return false;
    if (index0_ >= 0) before_ = current_;
    current_ = item;
    ++index0_;
    return true;
  }

  std::optional<Value> attribute(Runtime& rt, std::string_view name) override {
    if (name == "index") return Value(index0_ + 1);
    if (name == "index0") return Value(index0_);
    if (name == "first") return Value(index0_ == 0);
    if (name == "last") return Value(!peek());
    if (name == "length") return Value(length(rt));
    if (name == "revindex") return Value(length(rt) - index0_);
    if (name == "revindex0") return Value(length(rt) - index0_ - 1);
    if (name == "depth") return Value(int64_t{depth_} + 1);
    if (name == "depth0") return Value(int64_t{depth_});
    if (name == "previtem") return index0_ == 0 ? Value::undefined("there is no previous item") : before_;
    if (name == "nextitem") return peek() ? *ahead_ : Value::undefined("there is no next item");
    if (name == "cycle") {
      return Value::function(rt, "cycle", Value::none(), [index = index0_](Runtime& run, Args& args) {
        if (args.positional.empty()) run.fail("no items for cycling given");
        return args.positional[static_cast<size_t>(index) % args.positional.size()];
      });
    }
    if (name == "changed") {
      const auto self = Value::object(shared_from(*this));
      return Value::function(rt, "changed", Value::none(), [self](Runtime& run, Args& args) {
        auto& last = static_cast<Loop&>(self.object()).last_changed_;
        const Value now = Value::tuple(run, args.positional);
        const bool changed = !last || !equal(run, *last, now);
        last = now;
        return Value(changed);
      });
    }
    return std::nullopt;
  }

  bool callable() const override { return true; }
  Value call(Runtime& rt, Args& args) override {
    if (!stmt_.recursive) rt.fail("The loop must have the 'recursive' marker to be called recursively.");
    const Bound bound(rt, "loop", args, {"iterable"}, 1);
    std::string text;
    interpreter_.run_for(stmt_, *bound[0], scope_, depth_ + 1, text);
    interpreter_.written_ -= text.size();
    return Value::string(rt, std::move(text));
  }

  // The loop variable keeps itself alive through the functions it hands out.
  void own(const std::shared_ptr<Loop>& self) { self_ = self; }

 private:
  static std::shared_ptr<Object> shared_from(const Loop& loop) { return loop.self_.lock(); }

  bool pull(Value& item) {
    if (!buffer_) return next_(item);
    if (buffered_ == buffer_->size()) return false;
    item = (*buffer_)[buffered_++];
    return true;
  }

  bool peek() {
    if (ahead_) return true;
    Value item;
    if (!pull(item)) return false;
    ahead_ = item;
    return true;
  }

  int64_t length(Runtime& rt) {
    if (!length_) {  // a lazy sequence: read the rest now
      buffer_.emplace();
      for (Value item; next_(item);) {
        rt.charge(sizeof(Value));
        buffer_->push_back(item);
      }
      length_ = static_cast<int64_t>(buffer_->size()) + index0_ + 1 + (ahead_ ? 1 : 0);
    }
    return *length_;
  }

  Interpreter& interpreter_;
  const Stmt& stmt_;
  ScopePtr scope_;
  std::function<bool(Value&)> next_;
  int depth_;
  int64_t index0_ = -1;
  std::optional<int64_t> length_;
  std::optional<Value> ahead_;
  std::optional<Values> buffer_;
  size_t buffered_ = 0;
  Value before_;
  Value current_;
  std::optional<Value> last_changed_;
  std::weak_ptr<Loop> self_;
};

void Interpreter::run_for(const Stmt& stmt, const Value& iterable, const ScopePtr& scope, int depth, std::string& out) {
  const Runtime::Level level(rt_);
  std::function<bool(Value&)> next = iterate(rt_, iterable);
  if (stmt.exprs[1]) {
    next = [this, &stmt, scope, inner = std::move(next)](Value& item) {
      while (inner(item)) {
        const auto names = std::make_shared<Scope>(scope);
        assign(*stmt.targets[0], item, names, names);
        if (truth(evaluate(*stmt.exprs[1], names))) return true;
      }
      return false;
    };
  }
  const auto loop = std::make_shared<Loop>(*this, stmt, scope, iterable, std::move(next), depth);
  loop->own(loop);
  bool any = false;
  for (Value item; loop->advance(item);) {
    any = true;
    rt_.charge(128);
    const auto inner =
        std::make_shared<Scope>(scope);  // fresh each time: what an iteration sets does not reach the next
    inner->set("loop", Value::object(loop));
    assign(*stmt.targets[0], item, inner, inner);
    if (execute(stmt.bodies[0], inner, out) == Flow::break_) break;
  }
  if (!any && stmt.bodies.size() > 1) execute(stmt.bodies[1], inner_scope(stmt, 1, scope), out);
}

class Macro : public Object {
 public:
  Macro(Interpreter& interpreter, const Stmt& stmt, std::string name, ScopePtr scope)
      : interpreter_(interpreter), stmt_(stmt), name_(std::move(name)), scope_(std::move(scope)) {}

  std::string type_name() const override { return "Macro"; }
  std::string repr(Runtime&) override { return name_.empty() ? "<Macro anonymous>" : "<Macro '" + name_ + "'>"; }
  void clear() override { scope_.reset(); }
  bool callable() const override { return true; }

  std::optional<Value> attribute(Runtime& rt, std::string_view name) override {
    if (name == "name") return name_.empty() ? Value::none() : Value::string(rt, name_);
    if (name == "caller") return Value(stmt_.uses_caller);
    if (name == "catch_varargs") return Value(stmt_.uses_varargs);
    if (name == "catch_kwargs") return Value(stmt_.uses_kwargs);
    if (name != "arguments") return std::nullopt;
    Values names;
    for (const Parameter& parameter : stmt_.parameters) names.push_back(Value::string(rt, parameter.name));
    return Value::tuple(rt, std::move(names));
  }

  Value call(Runtime& rt, Args& args) override {
    const int line = rt.line;
    rt.charge(256);
    const ScopePtr scope = Interpreter::inner_scope(stmt_, 0, scope_);
    bind(rt, args, scope);
    std::string text;
    interpreter_.execute(stmt_.bodies[0], scope, text);
    rt.line = line;
    interpreter_.written_ -= text.size();
    return Value::string(rt, std::move(text));
  }

 private:
  std::string label() const { return name_.empty() ? "caller" : "macro '" + name_ + "'"; }

  void bind(Runtime& rt, Args& args, const ScopePtr& scope) {
    const size_t n = stmt_.parameters.size();
    std::vector<bool> used(args.keyword.size(), false);
    for (size_t i = 0; i < n; ++i) {
      const Parameter& parameter = stmt_.parameters[i];
      std::optional<Value> value;
      if (i < args.positional.size()) value = args.positional[i];
      for (size_t k = 0; k < args.keyword.size(); ++k) {
        if (args.keyword[k].first != parameter.name) continue;
        if (value) rt.fail(fmt::format("{} got multiple values for argument '{}'", label(), parameter.name));
        used[k] = true;
        value = args.keyword[k].second;
      }
      if (!value && parameter.fallback) value = interpreter_.evaluate(*parameter.fallback, scope);
      if (!value) value = Value::undefined(fmt::format("parameter '{}' was not provided", parameter.name));
      scope->set(parameter.name, *value);
    }
    bind_rest(rt, args, used, scope);
  }

  void bind_rest(Runtime& rt, Args& args, const std::vector<bool>& used, const ScopePtr& scope) {
    const size_t n = stmt_.parameters.size();
    Dict rest;
    std::optional<Value> caller;
    for (size_t k = 0; k < args.keyword.size(); ++k) {
      const auto& [key, value] = args.keyword[k];
      if (used[k]) continue;
      if (key == "caller" && stmt_.uses_caller)
        caller = value;
      else if (stmt_.uses_kwargs)
        rest.set(rt, Value::string(rt, key), value);
      else
        rt.fail(fmt::format("{} takes no keyword argument '{}'", label(), key));
    }
    if (stmt_.uses_caller && !scope_has_parameter("caller"))
      scope->set("caller", caller ? *caller : Value::undefined("No caller defined"));
    if (stmt_.uses_kwargs) scope->set("kwargs", Value::dict(rt, std::move(rest)));
    if (stmt_.uses_varargs) {
      Values more;
      for (size_t i = n; i < args.positional.size(); ++i) more.push_back(args.positional[i]);
      scope->set("varargs", Value::tuple(rt, std::move(more)));
    } else if (args.positional.size() > n) {
      rt.fail(fmt::format("{} takes not more than {} argument(s)", label(), n));
    }
  }

  bool scope_has_parameter(std::string_view name) const {
    for (const Parameter& parameter : stmt_.parameters) {
      if (parameter.name == name) return true;
    }
    return false;
  }

  Interpreter& interpreter_;
  const Stmt& stmt_;
  std::string name_;
  ScopePtr scope_;
};

Value Interpreter::make_macro(const Stmt& stmt, const std::string& name, const ScopePtr& scope) {
  auto macro = std::make_shared<Macro>(*this, stmt, name, scope);
  rt_.keep(macro);
  return Value::object(std::move(macro));
}

void Interpreter::run_call_block(const Stmt& stmt, const ScopePtr& scope, std::string& out) {
  const Value caller = make_macro(stmt, "", scope);
  write(out, to_string(rt_, evaluate_call(*stmt.exprs[0], scope, &caller)));
}

}  // namespace hayfork::engine::jinja
