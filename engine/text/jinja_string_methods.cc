// Methods of str. Positions are code points; arguments are checked as CPython does.
#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "base/utf8.h"
#include "engine/text/jinja_format.h"
#include "engine/text/jinja_methods.h"
#include "engine/text/jinja_text.h"

namespace hayfork::engine::jinja {
namespace {

Value made(Runtime& rt, const Value& self, std::string text) {
  return Value::string(rt, std::move(text)).as_markup(self.markup());
}

// Byte offset of a code point, or the size of the text.
size_t byte_offset(std::string_view text, int64_t position) {
  size_t offset = 0;
  for (int64_t i = 0; i < position && offset < text.size(); ++i) offset += decode_utf8(text, offset).length;
  return offset;
}

struct Window {
  std::string_view text;
  int64_t first;  // code points before it
  bool valid;     // false: start lies behind stop, where even "" is not found
};

// text[start:stop] of the arguments `at` and `at` + 1.
Window window(Runtime& rt, const Value& self, const Bound& bound, size_t at) {
  const std::string& text = self.text();
  const auto given = [&](size_t i) { return bound[i] && !bound[i]->is(Kind::none); };
  if (!given(at) && !given(at + 1)) return {text, 0, true};
  rt.step(static_cast<int64_t>(text.size() / 16));
  const auto n = static_cast<int64_t>(count_code_points(text));
  const auto clip = [&](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + n : i, 0, n + 1); };
  const int64_t start = given(at) ? clip(bound.integer(at, 0)) : 0;
  const int64_t stop = given(at + 1) ? std::min(clip(bound.integer(at + 1, 0)), n) : n;
  if (start > stop) return {{}, start, false};
  const size_t from = byte_offset(text, start);
  return {std::string_view(text).substr(from, byte_offset(text, stop) - from), start, true};
}

template <std::string (*F)(std::string_view)>
Value convert(Runtime& rt, const Value& self, Args& args) {
  const Bound bound(rt, "str method", args, {});
  rt.charge(self.text().size() * 4);  // ICU works in UTF-16
  return made(rt, self, F(self.text()));
}

template <Side kSide>
Value strip(Runtime& rt, const Value& self, Args& args) {
  const Bound bound(rt, "strip", args, {"chars"});
  if (!bound[0] || bound[0]->is(Kind::none)) return made(rt, self, std::string(strip_space(self.text(), kSide)));
  return made(rt, self, strip_chars(self.text(), bound.text(0, ""), kSide));
}

template <bool kPrefix>
Value affix(Runtime& rt, const Value& self, Args& args) {
  const char* const what = kPrefix ? "startswith" : "endswith";
  const Bound bound(rt, what, args, {"prefix", "start", "end"}, 1);
  const Window w = window(rt, self, bound, 1);
  const auto test = [&](const Value& part) {
    if (!part.is(Kind::string)) {
      rt.fail(fmt::format("{} first arg must be str or a tuple of str, not {}", what, type_name(part)));
    }
    return w.valid && (kPrefix ? w.text.starts_with(part.text()) : w.text.ends_with(part.text()));
  };
  if (!bound[0]->is(Kind::tuple)) return Value(test(*bound[0]));
  return Value(std::any_of(bound[0]->items().begin(), bound[0]->items().end(), test));
}

template <bool kLast, bool kMust>
Value find_in(Runtime& rt, const Value& self, Args& args) {
  const Bound bound(rt, "find", args, {"sub", "start", "end"}, 1);
  const Window w = window(rt, self, bound, 1);
  const std::string needle = bound.text(0, "");
  rt.charge(kLast ? w.text.size() : 0);
  const size_t found = !w.valid ? std::string::npos
                       : kLast  ? find_last_text(w.text, needle)
                                : find_text(w.text, needle);
  if (found != std::string::npos)
    return Value(w.first + static_cast<int64_t>(count_code_points(w.text.substr(0, found))));
  if (kMust) rt.fail("substring not found");
  return Value(int64_t{-1});
}

Value count(Runtime& rt, const Value& self, Args& args) {
  const Bound bound(rt, "count", args, {"sub", "start", "end"}, 1);
  const Window w = window(rt, self, bound, 1);
  const std::string needle = bound.text(0, "");
  if (!w.valid) return Value(int64_t{0});
  if (needle.empty()) return Value(static_cast<int64_t>(count_code_points(w.text)) + 1);
  int64_t n = 0;
  for (size_t i = find_text(w.text, needle); i != std::string::npos; i = find_text(w.text, needle, i + needle.size()))
    ++n;
  return Value(n);
}

Value replace(Runtime& rt, const Value& self, Args& args) {
  const Bound bound(rt, "replace", args, {"old", "new", "count"}, 2);
  const std::string from = bound.text(0, "");
  const std::string to = bound.text(1, "");
  // The size it will have is counted before it is made.
  size_t n = from.empty() ? count_code_points(self.text()) + 1 : 0;
  for (size_t i = from.empty() ? std::string::npos : find_text(self.text(), from); i != std::string::npos;
       i = find_text(self.text(), from, i + from.size()))
    ++n;
  const int64_t limit = bound.integer(2, -1);
  if (limit >= 0) n = std::min(n, static_cast<size_t>(limit));
  if (n > 0 && to.size() > (size_t{1} << 40) / n) rt.out_of("memory");
  rt.charge(n * to.size());
  return made(rt, self, replace_all(self.text(), from, to, limit, SIZE_MAX));
}

std::vector<std::string_view> split_space(std::string_view text, int64_t limit) {
  std::vector<std::string_view> parts;
  for (text = strip_space(text, Side::left); !text.empty(); text = strip_space(text, Side::left)) {
    if (limit-- == 0) {
      parts.push_back(text);
      break;
    }
    size_t end = 0;
    while (end < text.size()) {
      const DecodedChar c = decode_utf8(text, end);
      if (is_space(c.code_point)) break;
      end += c.length;
    }
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return parts;
}

std::vector<std::string_view> split_space_right(std::string_view text, int64_t limit) {
  std::vector<std::string_view> parts;
  for (text = strip_space(text, Side::right); !text.empty(); text = strip_space(text, Side::right)) {
    if (limit-- == 0) {
      parts.push_back(text);
      break;
    }
    size_t start = text.size();
    while (start > 0) {
      size_t previous = start - 1;
      while (previous > 0 && (static_cast<unsigned char>(text[previous]) & 0xC0) == 0x80) --previous;
      if (is_space(decode_utf8(text, previous).code_point)) break;
      start = previous;
    }
    parts.push_back(text.substr(start));
    text = text.substr(0, start);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator, int64_t limit) {
  std::vector<std::string_view> parts;
  size_t start = 0;
  while (limit-- != 0) {
    const size_t found = find_text(text, separator, start);
    if (found == std::string_view::npos) break;
    parts.push_back(text.substr(start, found - start));
    start = found + separator.size();
  }
  parts.push_back(text.substr(start));
  return parts;
}

// Separators are matched from the right, so overlapping ones fall differently than in split.
std::vector<std::string_view> split_at_right(std::string_view text, std::string_view separator, int64_t limit) {
  const std::string reversed(text.rbegin(), text.rend());
  const std::string mark(separator.rbegin(), separator.rend());
  std::vector<std::string_view> parts;
  for (const std::string_view part : split_at(reversed, mark, limit)) {
    const size_t end = text.size() - static_cast<size_t>(part.data() - reversed.data());
    parts.push_back(text.substr(end - part.size(), part.size()));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Value strings(Runtime& rt, const Value& self, const std::vector<std::string_view>& parts) {
  Values items;
  for (const std::string_view part : parts) items.push_back(made(rt, self, std::string(part)));
  return Value::list(rt, std::move(items));
}

template <bool kRight>
Value split(Runtime& rt, const Value& self, Args& args) {
  const Bound bound(rt, "split", args, {"sep", "maxsplit"});
  const int64_t limit = bound.integer(1, -1);
  rt.charge(self.text().size());
  if (!bound[0] || bound[0]->is(Kind::none)) {
    return strings(rt, self, kRight ? split_space_right(self.text(), limit) : split_space(self.text(), limit));
  }
  const std::string separator = bound.text(0, "");
  if (separator.empty()) rt.fail("empty separator");
  return strings(rt, self,
                 kRight ? split_at_right(self.text(), separator, limit) : split_at(self.text(), separator, limit));
}

Value splitlines(Runtime& rt, const Value& self, Args& args) {
  const Bound bound(rt, "splitlines", args, {"keepends"});
  rt.charge(self.text().size());
  return strings(rt, self, split_lines(self.text(), bound.truth(0, false)));
}

template <bool kRight>
Value partition(Runtime& rt, const Value& self, Args& args) {
  const Bound bound(rt, "partition", args, {"sep"}, 1);
  const std::string separator = bound.text(0, "");
  if (separator.empty()) rt.fail("empty separator");
  const std::string& text = self.text();
  rt.charge(text.size());
  const size_t found = kRight ? find_last_text(text, separator) : find_text(text, separator);
  const auto part = [&](std::string piece) { return made(rt, self, std::move(piece)); };
  if (found == std::string::npos) {
    return Value::tuple(rt, kRight ? Values{part(""), part(""), self} : Values{self, part(""), part("")});
  }
  return Value::tuple(rt, {part(text.substr(0, found)), part(separator), part(text.substr(found + separator.size()))});
}

template <bool kPrefix>
Value remove_affix(Runtime& rt, const Value& self, Args& args) {
  const Bound bound(rt, "removeprefix", args, {"affix"}, 1);
  const std::string part = bound.text(0, "");
  const std::string& text = self.text();
  if (kPrefix && text.starts_with(part)) return made(rt, self, text.substr(part.size()));
  if (!kPrefix && text.ends_with(part)) return made(rt, self, text.substr(0, text.size() - part.size()));
  return self;
}

Value join(Runtime& rt, const Value& self, Args& args) {
  const Bound bound(rt, "join", args, {"iterable"}, 1);
  std::string text;
  int64_t i = 0;
  const auto next = iterate(rt, *bound[0]);
  for (Value item; next(item); ++i) {
    if (!item.is(Kind::string))
      rt.fail(fmt::format("sequence item {}: expected str instance, {} found", i, type_name(item)));
    rt.charge(item.text().size() + self.text().size());
    if (i > 0) text += self.text();
    text += item.text();
  }
  return made(rt, self, std::move(text));
}

enum class Adjust { left, right, center };

template <Adjust kAdjust>
Value justify(Runtime& rt, const Value& self, Args& args) {
  const Bound bound(rt, "center", args, {"width", "fillchar"}, 1);
  const std::string fill = bound.text(1, " ");
  if (count_code_points(fill) != 1) rt.fail("The fill character must be exactly one character long");
  const int64_t width = bound.integer(0, 0);
  const int64_t pad = width - static_cast<int64_t>(count_code_points(self.text()));
  if (pad <= 0) return self;
  if (pad > int64_t{1} << 40) rt.out_of("memory");
  rt.charge(static_cast<size_t>(pad) * fill.size());
  const int64_t before = kAdjust == Adjust::left ? 0 : kAdjust == Adjust::right ? pad : pad / 2 + (pad & width & 1);
  std::string text;
  for (int64_t i = 0; i < before; ++i) text += fill;
  text += self.text();
  for (int64_t i = before; i < pad; ++i) text += fill;
  return made(rt, self, std::move(text));
}

Value zfill(Runtime& rt, const Value& self, Args& args) {
  const Bound bound(rt, "zfill", args, {"width"}, 1);
  const std::string& text = self.text();
  const int64_t pad = bound.integer(0, 0) - static_cast<int64_t>(count_code_points(text));
  if (pad <= 0) return self;
  if (pad > int64_t{1} << 40) rt.out_of("memory");
  rt.charge(static_cast<size_t>(pad));
  const size_t sign = !text.empty() && (text[0] == '+' || text[0] == '-') ? 1 : 0;
  return made(rt, self, text.substr(0, sign) + std::string(static_cast<size_t>(pad), '0') + text.substr(sign));
}

Value expandtabs(Runtime& rt, const Value& self, Args& args) {
  const Bound bound(rt, "expandtabs", args, {"tabsize"});
  const int64_t size = bound.integer(0, 8);
  std::string text;
  int64_t column = 0;
  for (const char c : self.text()) {
    if (c == '\t') {
      const int64_t n = size > 0 ? size - column % size : 0;
      if (n > int64_t{1} << 40) rt.out_of("memory");
      rt.charge(static_cast<size_t>(n));
      text.append(static_cast<size_t>(n), ' ');
      column += n;
    } else {
      text += c;
      if (c == '\n' || c == '\r')
        column = 0;
      else if ((static_cast<unsigned char>(c) & 0xC0) != 0x80)
        ++column;
    }
  }
  return made(rt, self, std::move(text));
}

Value format(Runtime& rt, const Value& self, Args& args) {
  return made(rt, self, brace_format(rt, self.text(), args));
}

Value format_map(Runtime& rt, const Value& self, Args& args) {
  const Bound bound(rt, "format_map", args, {"mapping"}, 1);
  if (!bound[0]->is(Kind::dict)) rt.fail("format_map() wants a mapping");
  Args named;
  for (const auto& [key, value] : bound[0]->dict().entries()) {
    if (key.is(Kind::string)) named.keyword.emplace_back(key.text(), value);
  }
  return made(rt, self, brace_format(rt, self.text(), named));
}

}  // namespace

Method find_string_method(std::string_view name) {
  static const std::unordered_map<std::string_view, Method> kMethods = {
      {"upper", convert<upper>},
      {"lower", convert<lower>},
      {"title", convert<title>},
      {"capitalize", convert<capitalize>},
      {"swapcase", convert<swap_case>},
      {"casefold", convert<case_fold>},
      {"strip", strip<Side::both>},
      {"lstrip", strip<Side::left>},
      {"rstrip", strip<Side::right>},
      {"startswith", affix<true>},
      {"endswith", affix<false>},
      {"find", find_in<false, false>},
      {"rfind", find_in<true, false>},
      {"index", find_in<false, true>},
      {"rindex", find_in<true, true>},
      {"count", count},
      {"replace", replace},
      {"split", split<false>},
      {"rsplit", split<true>},
      {"splitlines", splitlines},
      {"partition", partition<false>},
      {"rpartition", partition<true>},
      {"removeprefix", remove_affix<true>},
      {"removesuffix", remove_affix<false>},
      {"join", join},
      {"ljust", justify<Adjust::left>},
      {"rjust", justify<Adjust::right>},
      {"center", justify<Adjust::center>},
      {"zfill", zfill},
      {"expandtabs", expandtabs},
      {"format", format},
      {"format_map", format_map},

  };
  const auto found = kMethods.find(name);
  return found == kMethods.end() ? find_class_method(name) : found->second;
}

}  // namespace hayfork::engine::jinja
