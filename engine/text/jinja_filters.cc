// Filters on single values: text, numbers, JSON.
#include <charconv>
#include <cmath>
#include <unordered_map>

#include <fmt/format.h>

#include "base/utf8.h"
#include "engine/text/jinja_format.h"
#include "engine/text/jinja_library.h"
#include "engine/text/jinja_methods.h"
#include "engine/text/jinja_text.h"

namespace hayfork::engine::jinja {
namespace {

// str(value), but a safe string stays one.
Value soft_string(Runtime& rt, const Value& v) {
  return v.is(Kind::string) ? v : Value::string(rt, to_string(rt, v));
}

Value string_method(Runtime& rt, const Value& subject, const char* name, Args& args) {
  return find_string_method(name)(rt, soft_string(rt, subject), args);
}

Value upper_filter(Runtime& rt, const Value& v, Args& args) {
  return string_method(rt, v, "upper", args);
}
Value lower_filter(Runtime& rt, const Value& v, Args& args) {
  return string_method(rt, v, "lower", args);
}
Value capitalize_filter(Runtime& rt, const Value& v, Args& args) {
  return string_method(rt, v, "capitalize", args);
}
Value trim_filter(Runtime& rt, const Value& v, Args& args) {
  return string_method(rt, v, "strip", args);
}

Value title_filter(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "title", args, {});
  const std::string text = to_string(rt, v);
  rt.charge(text.size() * 4);
  // Jinja's own words: what stands between spaces, hyphens and opening brackets.
  const auto separates = [](char32_t c) {
    return is_space(c) || std::u32string_view(U"-({[<").find(c) != std::u32string_view::npos;
  };
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const DecodedChar c = decode_utf8(text, i);
    size_t end = i + c.length;
    if (separates(c.code_point)) {
      out += text.substr(i, c.length);
    } else {
      while (end < text.size() && !separates(decode_utf8(text, end).code_point)) end += decode_utf8(text, end).length;
      out += upper(text.substr(i, c.length)) + lower(std::string_view(text).substr(i + c.length, end - i - c.length));
    }
    i = end;
  }
  return Value::string(rt, std::move(out)).as_markup(v.markup());
}

Value replace_filter(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "replace", args, {"old", "new", "count"}, 2);
  Args strings;
  strings.positional = {Value::string(rt, to_string(rt, *bound[0])), Value::string(rt, to_string(rt, *bound[1]))};
  if (bound[2] && !bound[2]->is(Kind::none)) strings.positional.push_back(*bound[2]);
  return find_string_method("replace")(rt, Value::string(rt, to_string(rt, v)), strings);
}

Value string_filter(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "string", args, {});
  return soft_string(rt, v);
}

Value safe_filter(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "safe", args, {});
  return soft_string(rt, v).as_markup();
}

Value escape_filter(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "escape", args, {});
  const Value text = soft_string(rt, v);
  return text.markup() ? text : Value::string(rt, escape_html(text.text())).as_markup();
}

Value force_escape_filter(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "forceescape", args, {});
  return Value::string(rt, escape_html(to_string(rt, v))).as_markup();
}

Value default_filter(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "default", args, {"default_value", "boolean"});
  const bool replaced = v.is(Kind::undefined) || (bound.truth(1, false) && !truth(v));
  return replaced ? bound.get(0, Value::string(rt, "")) : v;
}

Value length_filter(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "length", args, {});
  return Value(length(rt, v));
}

Value tojson_filter(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = bound.truth(0, false);
  style.sort_keys = bound.truth(3, false);
  std::string indent;
  if (bound[1] && !bound[1]->is(Kind::none)) {
    if (bound[1]->is(Kind::string)) {
      indent = bound[1]->text();
    } else {
      const int64_t n = std::max<int64_t>(bound.integer(1, 0), 0);
      if (n > 1 << 20) rt.out_of("memory");
      indent.assign(static_cast<size_t>(n), ' ');
    }
    style.indent = &indent;
    style.item_separator = ",";
  }
  if (bound[2] && !bound[2]->is(Kind::none)) {
    const Values pair = to_items(rt, *bound[2]);
    if (pair.size() != 2 || !pair[0].is(Kind::string) || !pair[1].is(Kind::string))
      rt.fail("separators must be two strings");
    style.item_separator = pair[0].text();
    style.key_separator = pair[1].text();
  }
  return Value::string(rt, to_json(rt, v, style));
}

// ---- numbers ----
// Digits with single underscores between them, as Python's int() and float() accept; nothing when malformed.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const auto is_digit = [&](size_t k) {
      return k < text.size() && std::isalnum(static_cast<unsigned char>(text[k]));
    };
    if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) return std::nullopt;
  }
  return out;
}

std::optional<double> parse_float(std::string_view text) {
  const std::optional<std::string> plain = without_underscores(strip_space(text, Side::both));
  if (!plain) return std::nullopt;
  std::string_view digits = *plain;
  if (digits.starts_with("+")) digits.remove_prefix(1);
  if (digits.starts_with("+") || (plain->starts_with("+") && digits.starts_with("-"))) return std::nullopt;
  const std::string folded = lower(digits);
  if (folded.find('(') != std::string::npos) return std::nullopt;  // from_chars knows nan(…), Python does not
  double d = 0;
  const auto [end, error] = std::from_chars(folded.data(), folded.data() + folded.size(), d);
  if (end != folded.data() + folded.size() || folded.empty()) return std::nullopt;
  if (error == std::errc::result_out_of_range) return std::strtod(folded.c_str(), nullptr);
  return error == std::errc() ? std::optional<double>(d) : std::nullopt;
}

std::optional<int64_t> parse_int(Runtime& rt, std::string_view text, int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  text = strip_space(text, Side::both);
  const bool negative = text.starts_with("-");
  if (negative || text.starts_with("+")) text.remove_prefix(1);
  const auto prefixed = [&](char letter) { return text.size() > 1 && text[0] == '0' && (text[1] | 0x20) == letter; };
  for (const auto& [letter, value] : {std::pair{'x', 16}, {'o', 8}, {'b', 2}}) {
    if (!prefixed(letter) || (base != value && base != 0)) continue;
    text.remove_prefix(2);
    if (text.starts_with("_")) text.remove_prefix(1);
    base = value;
    break;
  }
  const std::optional<std::string> digits = without_underscores(text);
  if (!digits || digits->empty()) return std::nullopt;
  if (base == 0) {
    if ((*digits)[0] == '0' && digits->find_first_not_of('0') != std::string::npos) return std::nullopt;
    base = 10;
  }
  const std::string all = (negative ? "-" : "") + *digits;
  if ((*digits)[0] == '-') return std::nullopt;
  int64_t n = 0;
  const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), n, static_cast<int>(base));
  if (end != all.data() + all.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) rt.unsupported("an integer beyond 64 bits");
  return error == std::errc() ? std::optional<int64_t>(n) : std::nullopt;
}

Value int_filter(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "int", args, {"default", "base"});
  if (v.is(Kind::undefined)) rt.fail(v.text());
  if (v.is_integral()) return Value(v.integer());
  std::optional<double> d;
  if (v.is(Kind::string)) {
    if (const std::optional<int64_t> i = parse_int(rt, v.text(), bound.integer(1, 10))) return Value(*i);
    d = parse_float(v.text());
  } else if (v.is(Kind::floating)) {
    d = v.number();
  }
  if (!d || !std::isfinite(*d)) return bound.get(0, Value(int64_t{0}));
  if (!(std::fabs(*d) < 9.2e18)) rt.unsupported("an integer beyond 64 bits");
  return Value(static_cast<int64_t>(*d));
}

Value float_filter(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "float", args, {"default"});
  if (v.is(Kind::undefined)) rt.fail(v.text());
  if (v.is_number()) return Value(v.number());
  const std::optional<double> d = v.is(Kind::string) ? parse_float(v.text()) : std::nullopt;
  return d ? Value(*d) : bound.get(0, Value(0.0));
}

Value abs_filter(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "abs", args, {});
  if (v.is(Kind::undefined)) rt.fail(v.text());
  if (!v.is_number()) rt.fail(fmt::format("bad operand type for abs(): '{}'", type_name(v)));
  if (v.is(Kind::floating)) return Value(std::fabs(v.number()));
  return v.integer() < 0 ? negate(rt, v) : Value(v.integer());
}

// round(d, digits): the nearest decimal to the exact value, ties to even.
double round_to(double d, int64_t digits) {
  if (!std::isfinite(d) || digits > 323) return d;
  if (digits < -308) return std::copysign(0.0, d);
  if (digits < 0) {
    const long double scale = std::pow(10.0L, static_cast<long double>(-digits));
    return static_cast<double>(std::nearbyint(static_cast<long double>(d) / scale) * scale);
  }
  const std::string text = fmt::format("{:.{}f}", d, digits);
  double rounded = 0;
  std::from_chars(text.data(), text.data() + text.size(), rounded);
  return rounded;
}

Value round_filter(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "round", args, {"precision", "method"});
  const int64_t digits = bound.integer(0, 0);
  const std::string method = bound.text(1, "common");
  if (method != "common" && method != "ceil" && method != "floor") rt.fail("method must be common, ceil or floor");
  if (v.is(Kind::undefined)) rt.fail(v.text());
  if (!v.is_number()) rt.fail(fmt::format("type {} doesn't define __round__ method", type_name(v)));
  if (method == "common") {
    if (v.is(Kind::floating)) return Value(round_to(v.number(), digits));
    if (digits >= 0) return Value(v.integer());
    if (digits < -18) return Value(int64_t{0});
    return Value(static_cast<int64_t>(round_to(v.number(), digits)));
  }
  if (digits < -300 || digits > 300) rt.unsupported("this precision of round");
  const Value power = binary(rt, BinaryOp::pow, Value(int64_t{10}), Value(digits));
  const double scaled = binary(rt, BinaryOp::mul, v, power).number();
  return binary(rt, BinaryOp::div, Value(method == "ceil" ? std::ceil(scaled) : std::floor(scaled)), power);
}

// ---- layout ----
Value indent_filter(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "indent", args, {"width", "first", "blank"});
  if (v.is(Kind::undefined)) rt.fail(v.text());
  if (!v.is(Kind::string)) rt.fail(fmt::format("the filter indent wants a str, not {}", type_name(v)));
  std::string margin;
  if (bound[0] && bound[0]->is(Kind::string)) {
    margin = bound[0]->text();
  } else {
    const int64_t width = bound.integer(0, 4);
    if (width > 1 << 20) rt.out_of("memory");
    margin.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  const std::string text = v.text() + "\n";
  const std::vector<std::string_view> lines = split_lines(text, false);
  rt.charge(text.size() + lines.size() * (margin.size() + sizeof(std::string_view)));
  std::string out = bound.truth(1, false) ? margin : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i > 0 && (bound.truth(2, false) || !lines[i].empty())) out += margin;
    out += lines[i];
  }
  return Value::string(rt, std::move(out)).as_markup(v.markup());
}

Value center_filter(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "center", args, {"width"});
  Args width;
  width.positional = {Value(bound.integer(0, 80))};
  return string_method(rt, v, "center", width);
}

Value truncate_filter(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "truncate", args, {"length", "killwords", "end", "leeway"});
  const int64_t limit = bound.integer(0, 255);
  const std::string end = bound.text(2, "...");
  const int64_t leeway = bound[3] && !bound[3]->is(Kind::none) ? bound.integer(3, 5) : 5;
  const auto end_length = static_cast<int64_t>(count_code_points(end));
  if (limit < end_length || leeway < 0) rt.fail("the filter truncate wants a length of at least that of its end");
  if (length(rt, v) <= limit + leeway) return v;
  if (!v.is(Kind::string)) rt.fail("the filter truncate wants a str");
  std::string kept = slice(v.text(), 0, limit - end_length, 1);
  if (!bound.truth(1, false)) kept = kept.substr(0, kept.rfind(' '));
  return Value::string(rt, kept + end);
}

Value format_filter(Runtime& rt, const Value& v, Args& args) {
  if (!args.positional.empty() && !args.keyword.empty())
    rt.fail("can't handle positional and keyword arguments at the same time");
  const std::string format = to_string(rt, v);
  if (args.keyword.empty()) return Value::string(rt, percent_format(rt, format, Value::tuple(rt, args.positional)));
  Dict named;
  for (const auto& [key, value] : args.keyword) named.set(rt, Value::string(rt, key), value);
  return Value::string(rt, percent_format(rt, format, Value::dict(rt, std::move(named))));
}

}  // namespace

Filter find_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, Filter> kFilters = {
      {"upper", upper_filter},
      {"lower", lower_filter},
      {"capitalize", capitalize_filter},
      {"title", title_filter},
      {"trim", trim_filter},
      {"replace", replace_filter},
      {"string", string_filter},
      {"safe", safe_filter},
      {"escape", escape_filter},
      {"e", escape_filter},
      {"forceescape", force_escape_filter},
      {"default", default_filter},
      {"d", default_filter},
      {"length", length_filter},
      {"count", length_filter},
      {"tojson", tojson_filter},
      {"int", int_filter},
      {"float", float_filter},
      {"abs", abs_filter},
      {"round", round_filter},
      {"indent", indent_filter},
      {"center", center_filter},
      {"truncate", truncate_filter},
      {"format", format_filter},
  };
  const auto found = kFilters.find(name);
  return found == kFilters.end() ? find_sequence_filter(name) : found->second;
}

}  // namespace hayfork::engine::jinja
