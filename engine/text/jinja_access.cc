// a.b, a[b], a[b:c] and calls, in the order in which Jinja's immutable sandbox looks: attributes before items for the
// dot, items before attributes for the bracket; what would change a list or dict is refused.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/utf8.h"
#include "engine/text/jinja_methods.h"
#include "engine/text/jinja_text.h"
#include "engine/text/jinja_value.h"

namespace hayfork::engine::jinja {
namespace {

Value missing(Runtime& rt, const Value& value, const Value& name) {
  const std::string subject = describe(value);
  std::string hint;
  if (name.is(Kind::string))
    hint = fmt::format("{} has no attribute {}", subject, quote_repr(name.text()));
  else
    hint = fmt::format("{} has no element {}", subject.substr(1, subject.size() - 2), repr(rt, name));
  rt.charge(hint.size());
  return Value::undefined(std::move(hint));
}

bool changes_value(Kind kind, std::string_view name) {
  constexpr std::array<std::string_view, 8> kList = {"append", "clear", "pop",    "reverse",
                                                     "insert", "sort",  "extend", "remove"};
  constexpr std::array<std::string_view, 5> kDict = {"clear", "pop", "popitem", "setdefault", "update"};
  if (kind == Kind::list) return std::find(kList.begin(), kList.end(), name) != kList.end();
  return kind == Kind::dict && std::find(kDict.begin(), kDict.end(), name) != kDict.end();
}

// Attributes that exist in Python and that no template should need.
bool is_unknown_attribute(Kind kind, std::string_view name) {
  constexpr std::array<std::string_view, 3> kString = {"encode", "maketrans", "translate"};
  constexpr std::array<std::string_view, 13> kNumber = {
      "as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator", "from_bytes", "fromhex", "hex", "imag",
      "is_integer",       "numerator", "real",       "to_bytes"};
  if (kind == Kind::string) return std::find(kString.begin(), kString.end(), name) != kString.end();
  if (kind == Kind::integer || kind == Kind::floating || kind == Kind::boolean) {
    return std::find(kNumber.begin(), kNumber.end(), name) != kNumber.end();
  }
  if (kind == Kind::dict) return name == "fromkeys";
  return kind == Kind::view && (name == "isdisjoint" || name == "mapping");
}

std::optional<Value> python_attribute(Runtime& rt, const Value& value, const std::string& name) {
  if (value.is(Kind::object)) {
    if (std::optional<Value> found = value.object().attribute(rt, name)) return found;
  }
  const bool hidden = name.size() > 4 && name.starts_with("__") && name.ends_with("__");
  if (hidden || changes_value(value.kind(), name)) {
    return Value::undefined(
        fmt::format("access to attribute {} of '{}' object is unsafe.", quote_repr(name), type_name(value)));
  }
  if (is_unknown_attribute(value.kind(), name))
    rt.unsupported(fmt::format("the attribute {} of {}", name, type_name(value)));
  const Method method = value.is(Kind::string) ? find_string_method(name) : find_container_method(value.kind(), name);
  if (!method) return std::nullopt;
  return Value::function(rt, name, value,
                         [value, method](Runtime& run, Args& args) { return method(run, value, args); });
}

bool is_hashable(const Value& key) {
  if (key.is(Kind::tuple)) return std::all_of(key.items().begin(), key.items().end(), is_hashable);
  return !key.is(Kind::list) && !key.is(Kind::dict) && !key.is(Kind::view) && !key.is(Kind::generator);
}

std::optional<Value> indexed(Runtime& rt, const Value& value, int64_t index) {
  const std::optional<int64_t> n = length_if_sized(value);
  if (value.is(Kind::string)) rt.step(static_cast<int64_t>(value.text().size() / 64));
  if (!n) return std::nullopt;
  if (index < 0) index += *n;
  if (index < 0 || index >= *n) return std::nullopt;
  if (value.is(Kind::string))
    return Value::string(rt, slice(value.text(), index, index + 1, 1)).as_markup(value.markup());
  if (value.is(Kind::range)) return Value(value.range().start + value.range().step * index);
  return value.items()[index];
}

std::optional<Value> item_of(Runtime& rt, const Value& value, const Value& key) {
  if (value.is(Kind::dict)) {
    if (!is_hashable(key)) return std::nullopt;
    const Value* found = value.dict().find(rt, key);
    return found ? std::optional<Value>(*found) : std::nullopt;
  }
  const bool by_index = value.is(Kind::string) || value.is_sequence() || value.is(Kind::range);
  return by_index && key.is_integral() ? indexed(rt, value, key.integer()) : std::nullopt;
}

struct Slice {
  int64_t start, stop, step;
};

// CPython's rules for leaving out, counting from the end and clipping (PySlice_AdjustIndices).
Slice adjust(Runtime& rt, const Value& start, const Value& stop, const Value& step, int64_t n) {
  for (const Value* v : {&start, &stop, &step}) {
    if (!v->is(Kind::none) && !v->is_integral())
      rt.fail("slice indices must be integers or None or have an __index__ method");
  }
  Slice s{0, 0, step.is(Kind::none) ? 1 : step.integer()};
  if (s.step == 0) rt.fail("slice step cannot be zero");
  s.step = std::clamp(s.step, -n - 1, n + 1);  // a larger one takes the same single item, and cannot overflow
  const bool back = s.step < 0;
  const auto clip = [&](const Value& v, int64_t fallback) {
    if (v.is(Kind::none)) return fallback;
    int64_t i = v.integer();
    if (i < 0)
      i = i < -n ? (back ? -1 : 0) : i + n;
    else if (i >= n)
      i = back ? n - 1 : n;
    return i;
  };
  s.start = clip(start, back ? n - 1 : 0);
  s.stop = clip(stop, back ? -1 : n);
  return s;
}

}  // namespace

Value get_attribute(Runtime& rt, const Value& value, const std::string& name) {
  if (value.is(Kind::undefined)) rt.fail(value.text());
  if (std::optional<Value> found = python_attribute(rt, value, name)) return *found;
  if (value.is(Kind::dict)) {
    if (const Value* found = value.dict().find(name)) return *found;
  }
  return missing(rt, value, Value::constant(name));
}

Value get_item(Runtime& rt, const Value& value, const Value& key) {
  if (value.is(Kind::undefined)) rt.fail(value.text());
  if (std::optional<Value> found = item_of(rt, value, key)) return *found;
  if (key.is(Kind::string)) {
    if (std::optional<Value> found = python_attribute(rt, value, key.text())) return *found;
  }
  return missing(rt, value, key);
}

Value get_slice(Runtime& rt, const Value& value, const Value& start, const Value& stop, const Value& step) {
  if (value.is(Kind::undefined)) rt.fail(value.text());
  if (value.is(Kind::dict)) rt.fail("unhashable type: 'slice'");
  if (!value.is(Kind::string) && !value.is_sequence() && !value.is(Kind::range)) {
    rt.fail(fmt::format("'{}' object is not subscriptable", type_name(value)));
  }
  const Slice s = adjust(rt, start, stop, step, length(rt, value));
  if (value.is(Kind::string)) {
    rt.step(static_cast<int64_t>(value.text().size() / 64));
    if (s.step != 1) rt.charge(value.text().size() * sizeof(char32_t));
    return Value::string(rt, slice(value.text(), s.start, s.stop, s.step)).as_markup(value.markup());
  }
  if (value.is(Kind::range)) {
    const Range& r = value.range();
    return Value::range(r.start + r.step * s.start, r.start + r.step * s.stop, r.step * s.step);
  }
  Values items;
  for (int64_t i = s.start; s.step > 0 ? i < s.stop : i > s.stop; i += s.step) items.push_back(value.items()[i]);
  return value.is(Kind::list) ? Value::list(rt, std::move(items)) : Value::tuple(rt, std::move(items));
}

Value call(Runtime& rt, const Value& callee, Args& args) {
  if (callee.is(Kind::undefined)) rt.fail(callee.text());
  if (!callee.is(Kind::object) || !callee.object().callable())
    rt.fail(fmt::format("'{}' object is not callable", type_name(callee)));
  const Runtime::Level level(rt);
  rt.step();
  return callee.object().call(rt, args);
}

}  // namespace hayfork::engine::jinja
