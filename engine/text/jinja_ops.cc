// Printing, truth, comparison, iteration.
#include <cmath>

#include <fmt/format.h>

#include "base/utf8.h"
#include "engine/text/jinja_text.h"
#include "engine/text/jinja_value.h"

namespace hayfork::engine::jinja {
namespace {

void append_repr(Runtime& rt, std::string& out, const Value& value);

void append_items(Runtime& rt, std::string& out, const Values& items, char open, char close) {
  out += open;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(rt, out, items[i]);
  }
  if (open == '(' && items.size() == 1) out += ',';
  out += close;
}

void append_dict(Runtime& rt, std::string& out, const Dict& dict) {
  out += '{';
  bool first = true;
  for (const auto& [key, item] : dict.entries()) {
    if (!first) out += ", ";
    first = false;
    append_repr(rt, out, key);
    out += ": ";
    append_repr(rt, out, item);
  }
  out += '}';
}

void append_repr(Runtime& rt, std::string& out, const Value& value) {
  const Runtime::Level level(rt);
  const size_t before = out.size();
  switch (value.kind()) {
    case Kind::undefined:
      out += "Undefined";
      break;
    case Kind::none:
      out += "None";
      break;
    case Kind::boolean:
      out += value.boolean() ? "True" : "False";
      break;
    case Kind::integer:
      out += fmt::format("{}", value.integer());
      break;
    case Kind::floating:
      out += float_repr(value.number());
      break;
    case Kind::string:
      out += value.markup() ? "Markup(" + quote_repr(value.text()) + ")" : quote_repr(value.text());
      break;
    case Kind::list:
      append_items(rt, out, value.items(), '[', ']');
      break;
    case Kind::tuple:
      append_items(rt, out, value.items(), '(', ')');
      break;
    case Kind::dict:
      append_dict(rt, out, value.dict());
      break;
    case Kind::range: {
      const Range& r = value.range();
      out += r.step == 1 ? fmt::format("range({}, {})", r.start, r.stop)
                         : fmt::format("range({}, {}, {})", r.start, r.stop, r.step);
      break;
    }
    case Kind::view:
      out += value.view().type;
      out += '(';
      append_items(rt, out, value.items(), '[', ']');
      out += ')';
      break;
    case Kind::generator:
      rt.unsupported(
          fmt::format("a template that prints a generator ({}); add the filter list", value.generator().type));
    case Kind::object:
      out += value.object().repr(rt);
      break;
  }
  if (value.is_sequence() || value.is(Kind::dict) || value.is(Kind::view))
    rt.step(1);  // its items are charged by themselves
  else
    rt.charge(out.size() - before);
}

// Exact on x86, where long double holds every int64 and every double.
long double exact(const Value& v) {
  return v.is(Kind::floating) ? static_cast<long double>(v.number()) : static_cast<long double>(v.integer());
}

bool equal_items(Runtime& rt, const Values& a, const Values& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!equal(rt, a[i], b[i])) return false;
  }
  return true;
}

bool equal_dicts(Runtime& rt, const Dict& a, const Dict& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a.entries()) {
    const Value* other = b.find(rt, key);
    if (!other || !equal(rt, value, *other)) return false;
  }
  return true;
}

}  // namespace

std::string type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::floating:
      return "float";
    case Kind::string:
      return "str";
    case Kind::list:
      return "list";
    case Kind::tuple:
      return "tuple";
    case Kind::dict:
      return "dict";
    case Kind::range:
      return "range";
    case Kind::view:
      return value.view().type;
    case Kind::generator:
      return "generator";
    case Kind::object:
      return value.object().type_name();
  }
  return "object";
}

std::string describe(const Value& value) {
  return value.is(Kind::none) ? "'None'" : fmt::format("'{} object'", type_name(value));
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
    case Kind::integer:
      return value.integer() != 0;
    case Kind::floating:
      return value.number() != 0;
    case Kind::string:
      return !value.text().empty();
    case Kind::list:
    case Kind::tuple:
    case Kind::view:
      return !value.items().empty();
    case Kind::dict:
      return value.dict().size() > 0;
    case Kind::range:
      return value.range().size() > 0;
    case Kind::generator:
    case Kind::object:
      return true;
  }
  return true;
}

std::string to_string(Runtime& rt, const Value& value) {
  if (value.is(Kind::string)) return value.text();
  if (value.is(Kind::undefined)) return {};
  return repr(rt, value);
}

std::string repr(Runtime& rt, const Value& value) {
  std::string out;
  append_repr(rt, out, value);
  return out;
}

bool equal(Runtime& rt, const Value& a, const Value& b) {
  const Runtime::Level level(rt);
  rt.step();
  if (a.is_number() && b.is_number()) return exact(a) == exact(b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::string:
      rt.step(static_cast<int64_t>(a.text().size() / 64));
      return a.text() == b.text();
    case Kind::list:
    case Kind::tuple:
      return a.same(b) || equal_items(rt, a.items(), b.items());
    case Kind::view:
      return type_name(a) == type_name(b) && equal_items(rt, a.items(), b.items());
    case Kind::dict:
      return a.same(b) || equal_dicts(rt, a.dict(), b.dict());
    case Kind::range: {
      const Range& x = a.range();
      const Range& y = b.range();
      const int64_t n = x.size();
      return n == y.size() && (n == 0 || (x.start == y.start && (n == 1 || x.step == y.step)));
    }
    default:
      return a.same(b);
  }
}

int compare(Runtime& rt, const Value& a, const Value& b, const char* op) {
  const Runtime::Level level(rt);
  rt.step();
  for (const Value* v : {&a, &b}) {
    if (v->is(Kind::undefined)) rt.fail(v->text());
  }
  if (a.is_number() && b.is_number()) {
    const long double x = exact(a);
    const long double y = exact(b);
    if (std::isnan(x) || std::isnan(y)) return 2;
    return x < y ? -1 : x > y ? 1 : 0;
  }
  if (a.is(Kind::string) && b.is(Kind::string)) {  // UTF-8 sorts as code points do
    rt.step(static_cast<int64_t>(a.text().size() / 64));
    const int order = a.text().compare(b.text());
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    const size_t n = std::min(a.items().size(), b.items().size());
    for (size_t i = 0; i < n; ++i) {
      if (!equal(rt, a.items()[i], b.items()[i])) return compare(rt, a.items()[i], b.items()[i], op);
    }
    return a.items().size() < b.items().size() ? -1 : a.items().size() > b.items().size() ? 1 : 0;
  }
  rt.fail(fmt::format("'{}' not supported between instances of '{}' and '{}'", op, type_name(a), type_name(b)));
}

bool contains(Runtime& rt, const Value& container, const Value& item) {
  if (container.is(Kind::string)) {
    if (item.is(Kind::undefined)) rt.fail(item.text());
    if (!item.is(Kind::string))
      rt.fail(fmt::format("'in <string>' requires string as left operand, not {}", type_name(item)));
    rt.step(static_cast<int64_t>(container.text().size() / 64));
    return find_text(container.text(), item.text()) != std::string::npos;
  }
  if (container.is(Kind::dict)) return container.dict().find(rt, item) != nullptr;
  if (container.is(Kind::object)) rt.fail(fmt::format("argument of type '{}' is not iterable", type_name(container)));
  const auto next = iterate(rt, container);
  for (Value candidate; next(candidate);) {
    if (candidate.same(item) || equal(rt, candidate, item)) return true;
  }
  return false;
}

std::optional<int64_t> length_if_sized(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return 0;
    case Kind::string:
      return static_cast<int64_t>(count_code_points(value.text()));
    case Kind::list:
    case Kind::tuple:
    case Kind::view:
      return static_cast<int64_t>(value.items().size());
    case Kind::dict:
      return static_cast<int64_t>(value.dict().size());
    case Kind::range:
      return value.range().size();
    default:
      return std::nullopt;
  }
}

int64_t length(Runtime& rt, const Value& value) {
  if (value.is(Kind::string)) rt.step(static_cast<int64_t>(value.text().size() / 64));
  const std::optional<int64_t> n = length_if_sized(value);
  if (!n) rt.fail(fmt::format("object of type '{}' has no len()", type_name(value)));
  return *n;
}

std::function<bool(Value&)> iterate(Runtime& rt, const Value& value) {
  Runtime* const run = &rt;
  switch (value.kind()) {
    case Kind::undefined:
      return [](Value&) { return false; };
    case Kind::list:
    case Kind::tuple:
    case Kind::view:
      return [run, value, i = size_t{0}](Value& out) mutable {
        run->step();
        if (i == value.items().size()) return false;
        out = value.items()[i++];
        return true;
      };
    case Kind::dict:
      return [run, value, i = size_t{0}](Value& out) mutable {
        run->step();
        if (i == value.dict().size()) return false;
        out = value.dict().entries()[i++].first;
        return true;
      };
    case Kind::range:
      return [run, r = value.range(), i = int64_t{0}, n = value.range().size()](Value& out) mutable {
        run->step();
        if (i == n) return false;
        out = Value(r.start + r.step * i++);
        return true;
      };
    case Kind::string:
      return [run, value, i = size_t{0}](Value& out) mutable {
        if (i >= value.text().size()) return false;
        const int n = decode_utf8(value.text(), i).length;
        out = Value::string(*run, value.text().substr(i, n)).as_markup(value.markup());
        run->step();
        i += n;
        return true;
      };
    case Kind::generator:
      return [run, value](Value& out) {
        run->step();
        const Runtime::Level level(*run);
        return value.generator().next(out);
      };
    default:
      rt.fail(fmt::format("'{}' object is not iterable", type_name(value)));
  }
}

Values to_items(Runtime& rt, const Value& value) {
  Values items;
  const auto next = iterate(rt, value);
  for (Value item; next(item);) {
    rt.charge(sizeof(Value));
    items.push_back(item);
  }
  return items;
}

}  // namespace hayfork::engine::jinja
