// + - * / // % ** with Python's meaning, on 64-bit integers: what does not fit is an error, never a wrong number.
#include <cmath>

#include <fmt/format.h>

#include "engine/text/jinja_format.h"
#include "engine/text/jinja_text.h"
#include "engine/text/jinja_value.h"

namespace hayfork::engine::jinja {
namespace {

constexpr const char* kSymbols[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

[[noreturn]] void too_large(Runtime& rt) {
  rt.unsupported("an integer beyond 64 bits");
}

int64_t power(Runtime& rt, int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) too_large(rt);
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) too_large(rt);
  }
  return result;
}

int64_t floor_div(int64_t a, int64_t b) {
  return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}

Value integers(Runtime& rt, BinaryOp op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case BinaryOp::add:
      if (__builtin_add_overflow(a, b, &result)) too_large(rt);
      return Value(result);
    case BinaryOp::sub:
      if (__builtin_sub_overflow(a, b, &result)) too_large(rt);
      return Value(result);
    case BinaryOp::mul:
      if (__builtin_mul_overflow(a, b, &result)) too_large(rt);
      return Value(result);
    case BinaryOp::div:
      if (b == 0) rt.fail("division by zero");
      return Value(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
    case BinaryOp::floordiv:
    case BinaryOp::mod:
      if (b == 0) rt.fail("integer division or modulo by zero");
      if (b == -1) return op == BinaryOp::mod ? Value(int64_t{0}) : negate(rt, Value(a));  // INT64_MIN / -1 traps
      return Value(op == BinaryOp::floordiv ? floor_div(a, b) : a - floor_div(a, b) * b);
    case BinaryOp::pow:
      if (b >= 0) return Value(power(rt, a, b));
      if (a == 0) rt.fail("0.0 cannot be raised to a negative power");
      return Value(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
  return Value::none();
}

Value doubles(Runtime& rt, BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::add:
      return Value(a + b);
    case BinaryOp::sub:
      return Value(a - b);
    case BinaryOp::mul:
      return Value(a * b);
    case BinaryOp::div:
      if (b == 0) rt.fail("float division by zero");
      return Value(a / b);
    case BinaryOp::floordiv:
    case BinaryOp::mod: {
      if (b == 0) rt.fail(op == BinaryOp::mod ? "float modulo" : "float floor division by zero");
      double mod = std::fmod(a, b);
      double div = (a - mod) / b;
      if (mod != 0) {
        if ((b < 0) != (mod < 0)) {
          mod += b;
          div -= 1;
        }
      } else {
        mod = std::copysign(0.0, b);
      }
      if (op == BinaryOp::mod) return Value(mod);
      if (div == 0) return Value(std::copysign(0.0, a / b));
      const double floored = std::floor(div);
      return Value(div - floored > 0.5 ? floored + 1 : floored);
    }
    case BinaryOp::pow: {
      if (a == 0 && b < 0) rt.fail("0.0 cannot be raised to a negative power");
      if (a < 0 && std::isfinite(b) && b != std::floor(b)) rt.unsupported("a complex number");
      const double result = std::pow(a, b);
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) rt.fail("(34, 'Numerical result out of range')");
      return Value(result);
    }
  }
  return Value::none();
}

Value repeat(Runtime& rt, const Value& sequence, int64_t times) {
  times = std::max<int64_t>(times, 0);
  const size_t unit = sequence.is(Kind::string) ? sequence.text().size() : sequence.items().size() * sizeof(Value);
  size_t bytes = 0;
  if (__builtin_mul_overflow(unit, static_cast<size_t>(times), &bytes) || bytes > size_t{1} << 40) rt.out_of("memory");
  rt.charge(bytes);
  if (unit == 0) times = 0;
  if (sequence.is(Kind::string)) {
    std::string text;
    for (int64_t i = 0; i < times; ++i) text += sequence.text();
    return Value::string(rt, std::move(text)).as_markup(sequence.markup());
  }
  Values items;
  for (int64_t i = 0; i < times; ++i) items.insert(items.end(), sequence.items().begin(), sequence.items().end());
  return sequence.is(Kind::list) ? Value::list(rt, std::move(items)) : Value::tuple(rt, std::move(items));
}

// A string from the filters safe or escape stays safe: what is added to it is escaped (markupsafe.Markup).
Value join_strings(Runtime& rt, const Value& a, const Value& b) {
  const bool markup = a.markup() || b.markup();
  rt.charge(a.text().size() + b.text().size());
  if (!markup) return Value::string(rt, a.text() + b.text());
  const auto part = [](const Value& v) { return v.markup() ? v.text() : escape_html(v.text()); };
  return Value::string(rt, part(a) + part(b)).as_markup();
}

}  // namespace

Value binary(Runtime& rt, BinaryOp op, const Value& a, const Value& b) {
  if (op == BinaryOp::mod && a.is(Kind::string)) {
    return Value::string(rt, percent_format(rt, a.text(), b)).as_markup(a.markup());
  }
  if (a.is(Kind::undefined)) rt.fail(a.text());
  if (b.is(Kind::undefined)) rt.fail(b.text());
  if (a.is_integral() && b.is_integral()) return integers(rt, op, a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return doubles(rt, op, a.number(), b.number());
  if (op == BinaryOp::add && a.is(Kind::string) && b.is(Kind::string)) return join_strings(rt, a, b);
  if (op == BinaryOp::add && a.is_sequence() && a.kind() == b.kind()) {
    Values items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    return a.is(Kind::list) ? Value::list(rt, std::move(items)) : Value::tuple(rt, std::move(items));
  }
  if (op == BinaryOp::mul) {
    if ((a.is(Kind::string) || a.is_sequence()) && b.is_integral()) return repeat(rt, a, b.integer());
    if ((b.is(Kind::string) || b.is_sequence()) && a.is_integral()) return repeat(rt, b, a.integer());
  }
  if (op == BinaryOp::add && (a.is(Kind::string) || a.is_sequence())) {
    rt.fail(fmt::format("can only concatenate {0} (not \"{1}\") to {0}", type_name(a), type_name(b)));
  }
  rt.fail(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", kSymbols[static_cast<int>(op)], type_name(a),
                      type_name(b)));
}

Value negate(Runtime& rt, const Value& a) {
  if (a.is(Kind::undefined)) rt.fail(a.text());
  if (a.is_integral()) return integers(rt, BinaryOp::sub, 0, a.integer());
  if (a.is(Kind::floating)) return Value(-a.number());
  rt.fail(fmt::format("bad operand type for unary -: '{}'", type_name(a)));
}

Value positive(Runtime& rt, const Value& a) {
  if (a.is(Kind::undefined)) rt.fail(a.text());
  if (a.is_integral()) return Value(a.integer());
  if (a.is(Kind::floating)) return a;
  rt.fail(fmt::format("bad operand type for unary +: '{}'", type_name(a)));
}

}  // namespace hayfork::engine::jinja
