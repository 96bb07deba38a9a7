// Tests: what stands after `is`, and what select and its like take by name.
#include <unordered_map>

#include <fmt/format.h>

#include "engine/text/jinja_library.h"
#include "engine/text/jinja_methods.h"

namespace hayfork::engine::jinja {
namespace {

template <bool (*F)(const Value&)>
bool plain(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "test", args, {});
  return F(v);
}

bool is_defined(const Value& v) {
  return !v.is(Kind::undefined);
}
bool is_undefined(const Value& v) {
  return v.is(Kind::undefined);
}
bool is_none(const Value& v) {
  return v.is(Kind::none);
}
bool is_boolean(const Value& v) {
  return v.is(Kind::boolean);
}
bool is_true(const Value& v) {
  return v.is(Kind::boolean) && v.boolean();
}
bool is_false(const Value& v) {
  return v.is(Kind::boolean) && !v.boolean();
}
bool is_integer(const Value& v) {
  return v.is(Kind::integer);
}
bool is_float(const Value& v) {
  return v.is(Kind::floating);
}
bool is_number(const Value& v) {
  return v.is_number();
}
bool is_string(const Value& v) {
  return v.is(Kind::string);
}
bool is_mapping(const Value& v) {
  return v.is(Kind::dict);
}
bool is_escaped(const Value& v) {
  return v.markup();
}
// An undefined value has the method for calls (it raises), so Jinja says it is callable.
bool is_callable(const Value& v) {
  return v.is(Kind::undefined) || (v.is(Kind::object) && v.object().callable());
}
// An undefined value has a length (0) and the method for indexing, so Jinja calls it a sequence; a dict too.
bool is_sequence(const Value& v) {
  return v.is_sequence() || v.is(Kind::string) || v.is(Kind::dict) || v.is(Kind::range) || v.is(Kind::undefined);
}
bool is_iterable(const Value& v) {
  return is_sequence(v) || v.is(Kind::view) || v.is(Kind::generator);
}

bool equals_int(Runtime& rt, const Value& v, int64_t divisor, int64_t rest) {
  return equal(rt, binary(rt, BinaryOp::mod, v, Value(divisor)), Value(rest));
}

bool odd(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "odd", args, {});
  return equals_int(rt, v, 2, 1);
}

bool even(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "even", args, {});
  return equals_int(rt, v, 2, 0);
}

bool divisible_by(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "divisibleby", args, {"num"}, 1);
  return equal(rt, binary(rt, BinaryOp::mod, v, *bound[0]), Value(int64_t{0}));
}

template <bool kEqual>
bool equality(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "eq", args, {"other"}, 1);
  return equal(rt, v, *bound[0]) == kEqual;
}

enum class Order { lt, le, gt, ge };

template <Order kOrder>
bool ordered(Runtime& rt, const Value& v, Args& args) {
  constexpr const char* kNames[] = {"<", "<=", ">", ">="};
  const Bound bound(rt, "comparison", args, {"other"}, 1);
  const int order = compare(rt, v, *bound[0], kNames[static_cast<int>(kOrder)]);
  switch (kOrder) {
    case Order::lt:
      return order == -1;
    case Order::le:
      return order == -1 || order == 0;
    case Order::gt:
      return order == 1;
    case Order::ge:
      return order == 1 || order == 0;
  }
  return false;
}

bool in(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "in", args, {"seq"}, 1);
  return contains(rt, *bound[0], v);
}

bool same_as(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "sameas", args, {"other"}, 1);
  return v.same(*bound[0]);
}

template <bool kUpper>
bool cased(Runtime& rt, const Value& v, Args& args) {
  const Value text = Value::string(rt, to_string(rt, v));
  return find_string_method(kUpper ? "isupper" : "islower")(rt, text, args).boolean();
}

bool knows_filter(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "filter", args, {});
  return v.is(Kind::string) && find_filter(v.text());
}

bool knows_test(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "test", args, {});
  return v.is(Kind::string) && find_test(v.text());
}

}  // namespace

Test find_test(std::string_view name) {
  static const std::unordered_map<std::string_view, Test> kTests = {
      {"defined", plain<is_defined>},
      {"undefined", plain<is_undefined>},
      {"none", plain<is_none>},
      {"boolean", plain<is_boolean>},
      {"true", plain<is_true>},
      {"false", plain<is_false>},
      {"integer", plain<is_integer>},
      {"float", plain<is_float>},
      {"number", plain<is_number>},
      {"string", plain<is_string>},
      {"mapping", plain<is_mapping>},
      {"escaped", plain<is_escaped>},
      {"callable", plain<is_callable>},
      {"sequence", plain<is_sequence>},
      {"iterable", plain<is_iterable>},
      {"odd", odd},
      {"even", even},
      {"divisibleby", divisible_by},
      {"eq", equality<true>},
      {"==", equality<true>},
      {"equalto", equality<true>},
      {"ne", equality<false>},
      {"!=", equality<false>},
      {"lt", ordered<Order::lt>},
      {"<", ordered<Order::lt>},
      {"lessthan", ordered<Order::lt>},
      {"le", ordered<Order::le>},
      {"<=", ordered<Order::le>},
      {"gt", ordered<Order::gt>},
      {">", ordered<Order::gt>},
      {"greaterthan", ordered<Order::gt>},
      {"ge", ordered<Order::ge>},
      {">=", ordered<Order::ge>},
      {"in", in},
      {"sameas", same_as},
      {"lower", cased<false>},
      {"upper", cased<true>},
      {"filter", knows_filter},
      {"test", knows_test},
  };
  const auto found = kTests.find(name);
  return found == kTests.end() ? nullptr : found->second;
}

}  // namespace hayfork::engine::jinja
