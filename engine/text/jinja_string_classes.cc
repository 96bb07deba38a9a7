// The methods of str that ask what kind of characters it has.
#include <unordered_map>

#include <unicode/uchar.h>

#include "base/utf8.h"
#include "engine/text/jinja_methods.h"
#include "engine/text/jinja_text.h"

namespace hayfork::engine::jinja {
namespace {

bool alpha(char32_t c) {
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_L_MASK) != 0;
}
int numeric_type(char32_t c) {
  return u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_NUMERIC_TYPE);
}
bool decimal(char32_t c) {
  return numeric_type(c) == U_NT_DECIMAL;
}
bool digit(char32_t c) {
  return decimal(c) || numeric_type(c) == U_NT_DIGIT;
}
bool numeric(char32_t c) {
  return numeric_type(c) != U_NT_NONE;
}
bool alnum(char32_t c) {
  return alpha(c) || numeric(c);
}

template <bool (*F)(char32_t), bool kEmpty>
Value every(Runtime& rt, const Value& self, Args& args) {
  const Bound bound(rt, "str method", args, {});
  const std::string& text = self.text();
  if (text.empty()) return Value(kEmpty);
  for (size_t i = 0; i < text.size();) {
    const DecodedChar c = decode_utf8(text, i);
    if (!F(c.code_point)) return Value(false);
    i += c.length;
  }
  return Value(true);
}

bool ascii(char32_t c) {
  return c < 0x80;
}
bool is_upper(char32_t c) {
  return u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_UPPERCASE);
}
bool is_lower(char32_t c) {
  return u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_LOWERCASE);
}

template <bool kUpper>
Value has_case(Runtime& rt, const Value& self, Args& args) {
  const Bound bound(rt, "str method", args, {});
  bool any = false;
  for (const char32_t c : to_code_points(self.text())) {
    if (kUpper ? is_lower(c) : is_upper(c) || u_istitle(static_cast<UChar32>(c))) return Value(false);
    if (kUpper && u_istitle(static_cast<UChar32>(c))) return Value(false);
    any = any || (kUpper ? is_upper(c) : is_lower(c));
  }
  return Value(any);
}

Value istitle(Runtime& rt, const Value& self, Args& args) {
  const Bound bound(rt, "istitle", args, {});
  bool any = false;
  bool after_cased = false;
  for (const char32_t c : to_code_points(self.text())) {
    const bool upper_or_title = is_upper(c) || u_istitle(static_cast<UChar32>(c));
    if (upper_or_title ? after_cased : is_lower(c) && !after_cased) return Value(false);
    after_cased = upper_or_title || is_lower(c);
    any = any || after_cased;
  }
  return Value(any);
}

Value isidentifier(Runtime& rt, const Value& self, Args& args) {
  const Bound bound(rt, "isidentifier", args, {});
  bool first = true;
  for (const char32_t c : to_code_points(self.text())) {
    const auto point = static_cast<UChar32>(c);
    const bool fits = first ? c == '_' || u_hasBinaryProperty(point, UCHAR_XID_START)
                            : u_hasBinaryProperty(point, UCHAR_XID_CONTINUE);
    if (!fits) return Value(false);
    first = false;
  }
  return Value(!first);
}

}  // namespace

Method find_class_method(std::string_view name) {
  static const std::unordered_map<std::string_view, Method> kMethods = {
      {"isalpha", every<alpha, false>},
      {"isalnum", every<alnum, false>},
      {"isdigit", every<digit, false>},
      {"isdecimal", every<decimal, false>},
      {"isnumeric", every<numeric, false>},
      {"isspace", every<is_space, false>},
      {"isprintable", every<is_printable, true>},
      {"isascii", every<ascii, true>},
      {"isupper", has_case<true>},
      {"islower", has_case<false>},
      {"istitle", istitle},
      {"isidentifier", isidentifier},
  };
  const auto found = kMethods.find(name);
  return found == kMethods.end() ? nullptr : found->second;
}

}  // namespace hayfork::engine::jinja
