// "{} {name:>8}".format(…), the parts of it that templates use.
#include <algorithm>

#include <fmt/format.h>

#include "base/utf8.h"
#include "engine/text/jinja_format.h"
#include "engine/text/jinja_spec.h"
#include "engine/text/jinja_text.h"

namespace hayfork::engine::jinja {
namespace {

class Braces {
 public:
  Braces(Runtime& rt, const Args& args) : rt_(rt), args_(args) {}

  std::string expand(std::string_view format, int depth) {
    if (depth > 2) rt_.fail("Max string recursion exceeded");
    std::string out;
    for (size_t i = 0; i < format.size();) {
      const char c = format[i];
      if (c != '{' && c != '}') {
        out += c;
        ++i;
        continue;
      }
      if (i + 1 < format.size() && format[i + 1] == c) {
        out += c;
        i += 2;
        continue;
      }
      if (c == '}') rt_.fail("Single '}' encountered in format string");
      const size_t close = matching(format, i);
      out += field(format.substr(i + 1, close - i - 1), depth);
      i = close + 1;
    }
    rt_.charge(out.size());
    return out;
  }

 private:
  size_t matching(std::string_view format, size_t open) {
    int nested = 0;
    bool bracket = false;
    for (size_t i = open; i < format.size(); ++i) {
      if (format[i] == '[' && nested == 1) bracket = true;
      if (format[i] == ']') bracket = false;
      if (bracket) continue;
      if (format[i] == '{') ++nested;
      if (format[i] == '}' && --nested == 0) return i;
    }
    rt_.fail("expected '}' before end of string");
  }

  std::string field(std::string_view text, int depth) {
    size_t end = 0;
    for (bool bracket = false; end < text.size(); ++end) {
      if (text[end] == '[') bracket = true;
      if (text[end] == ']') bracket = false;
      if (!bracket && (text[end] == '!' || text[end] == ':')) break;
    }
    Value value = lookup(text.substr(0, end));
    std::string_view rest = text.substr(end);
    if (rest.starts_with("!")) {
      if (rest.size() < 2 || (rest[1] != 's' && rest[1] != 'r')) rt_.unsupported("a conversion other than !s and !r");
      value = Value::string(rt_, rest[1] == 's' ? to_string(rt_, value) : repr(rt_, value));
      rest.remove_prefix(2);
      if (!rest.empty() && rest[0] != ':') rt_.fail("expected ':' after conversion specifier");
    }
    if (rest.starts_with(":")) rest.remove_prefix(1);
    return format_value(value, expand(rest, depth + 1));
  }

  Value lookup(std::string_view path) {
    const size_t end = std::min(path.find_first_of(".["), path.size());
    const std::string_view first = path.substr(0, end);
    Value value = root(first);
    path.remove_prefix(end);
    while (!path.empty()) {
      if (path[0] == '.') {
        const size_t stop = std::min(path.find_first_of(".[", 1), path.size());
        value = get_attribute(rt_, value, std::string(path.substr(1, stop - 1)));
        path.remove_prefix(stop);
        continue;
      }
      const size_t close = path.find(']');
      if (path[0] != '[' || close == std::string_view::npos) rt_.fail("Missing ']' in format string");
      const std::string_view key = path.substr(1, close - 1);
      value = get_item(rt_, value, is_index(key) ? Value(index(key)) : Value::string(rt_, std::string(key)));
      path.remove_prefix(close + 1);
    }
    return value;
  }

  static bool is_index(std::string_view text) {
    return !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string_view::npos;
  }
  static int64_t index(std::string_view text) { return std::stoll(std::string(text)); }

  Value root(std::string_view name) {
    if (name.empty() || is_index(name)) {
      const bool automatic = name.empty();
      if (automatic_ && *automatic_ != automatic) rt_.fail("cannot mix automatic and manual field numbering");
      automatic_ = automatic;
      const size_t i = automatic ? next_++ : static_cast<size_t>(index(name));
      if (i >= args_.positional.size())
        rt_.fail(fmt::format("Replacement index {} out of range for positional args tuple", i));
      return args_.positional[i];
    }
    const Value* found = args_.find(name);
    if (!found) rt_.fail(fmt::format("format() has no argument {}", quote_repr(name)));
    return *found;
  }

  Spec parse_spec(const std::string& text) {
    Spec spec;
    size_t i = 0;
    const auto is_align = [](char c) { return c == '<' || c == '>' || c == '=' || c == '^'; };
    if (!text.empty()) {
      const auto n = static_cast<size_t>(decode_utf8(text, 0).length);
      if (n < text.size() && is_align(text[n])) {
        spec.fill = text.substr(0, n);
        spec.align = text[n];
        i = n + 1;
      } else if (is_align(text[0])) {
        spec.align = text[i++];
      }
    }
    const auto at = [&] { return i < text.size() ? text[i] : '\0'; };
    if (at() == '+' || at() == '-' || at() == ' ') spec.sign = text[i++];
    if (at() == '#') spec.alternate = true, ++i;
    if (at() == '0' && !spec.align) spec.fill = "0", spec.align = '=', ++i;
    spec.width = digits(text, i, 0);
    if (at() == ',' || at() == '_') spec.group = text[i++];
    if (at() == '.') {
      ++i;
      spec.precision = digits(text, i, -1);
      if (spec.precision < 0) rt_.fail("Format specifier missing precision");
    }
    if (i < text.size()) spec.type = text[i++];
    if (i < text.size()) rt_.fail("Invalid format specifier");
    return spec;
  }

  int64_t digits(const std::string& text, size_t& i, int64_t none) {
    if (i >= text.size() || text[i] < '0' || text[i] > '9') return none;
    int64_t n = 0;
    for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
      n = n * 10 + (text[i] - '0');
      if (n > kMaxWidth) rt_.out_of("memory");
    }
    return n;
  }

  std::string format_value(const Value& value, const std::string& text) {
    if (text.empty()) return to_string(rt_, value);
    Spec spec = parse_spec(text);
    const auto bad = [&] {
      rt_.fail(fmt::format("Unknown format code '{}' for object of type '{}'", printable(std::string(1, spec.type)),
                           type_name(value)));
    };
    if (spec.group &&
        (spec.fill == "0" || (spec.type && std::string_view("dfFeEgG%").find(spec.type) == std::string_view::npos))) {
      rt_.unsupported("digit groups together with this format");
    }
    if (value.is(Kind::string)) {
      if (spec.type && spec.type != 's') bad();
      if (spec.align == '=' && spec.fill != "0") rt_.fail("'=' alignment not allowed in string format specifier");
      if (spec.align == '=') spec.align = '<';
      if (spec.sign != '-' || spec.alternate || spec.group)
        rt_.fail("Sign, # and , are not allowed in string format specifier");
      return format_text(rt_, value.text(), spec);
    }
    const bool as_double = std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos && spec.type;
    if (spec.alternate && (as_double || value.is(Kind::floating))) rt_.unsupported("the flag # for a float");
    if (value.is(Kind::floating) || (value.is_integral() && as_double)) {
      if (spec.type && !as_double) bad();
      return format_double(rt_, value.number(), spec);
    }
    if (!value.is_integral())
      rt_.fail(fmt::format("unsupported format string passed to {}.__format__", type_name(value)));
    if (spec.type && std::string_view("bcdoxX").find(spec.type) == std::string_view::npos) bad();
    if (spec.precision >= 0) rt_.fail("Precision not allowed in integer format specifier");
    return format_integer(rt_, value.integer(), spec);
  }

  Runtime& rt_;
  const Args& args_;
  size_t next_ = 0;
  std::optional<bool> automatic_;
};

}  // namespace

std::string brace_format(Runtime& rt, const std::string& format, const Args& args) {
  return Braces(rt, args).expand(format, 0);
}

}  // namespace hayfork::engine::jinja
