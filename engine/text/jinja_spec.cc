#include "engine/text/jinja_spec.h"

#include <cmath>

#include <fmt/format.h>

#include "base/utf8.h"
#include "engine/text/jinja_text.h"

namespace hayfork::engine::jinja {
namespace {

std::string pad(Runtime& rt, const std::string& sign, const std::string& body, const Spec& spec, char own_align) {
  const int64_t missing = spec.width - static_cast<int64_t>(count_code_points(sign) + count_code_points(body));
  if (missing <= 0) return sign + body;
  const char align = spec.align ? spec.align : own_align;
  rt.charge(static_cast<size_t>(missing) * spec.fill.size());
  const int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string before;
  std::string after;
  for (int64_t i = 0; i < left; ++i) before += spec.fill;
  for (int64_t i = left; i < missing; ++i) after += spec.fill;
  return align == '=' ? sign + before + body : before + sign + body + after;
}

std::string grouped(const std::string& digits, char group) {
  if (!group) return digits;
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string out;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % 3 == 0) out += group;
    out += digits[i];
  }
  return out + digits.substr(whole);
}

std::string signed_pad(Runtime& rt, bool negative, const std::string& body, const Spec& spec) {
  const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  return pad(rt, sign, grouped(body, spec.group), spec, '>');
}

}  // namespace

std::string format_integer(Runtime& rt, int64_t i, const Spec& spec) {
  const uint64_t magnitude = i < 0 ? 0 - static_cast<uint64_t>(i) : static_cast<uint64_t>(i);
  if (spec.type == 'c') {
    if (i < 0 || i > 0x10FFFF) rt.fail("%c arg not in range(0x110000)");
    std::string character;
    append_utf8(character, static_cast<char32_t>(i));
    return pad(rt, "", character, spec, '<');
  }
  std::string digits;
  std::string prefix;
  switch (spec.type) {
    case 'x':
      digits = fmt::format("{:x}", magnitude), prefix = "0x";
      break;
    case 'X':
      digits = fmt::format("{:X}", magnitude), prefix = "0X";
      break;
    case 'o':
      digits = fmt::format("{:o}", magnitude), prefix = "0o";
      break;
    case 'b':
      digits = fmt::format("{:b}", magnitude), prefix = "0b";
      break;
    default:
      digits = fmt::format("{}", magnitude);
  }
  if (spec.precision > static_cast<int64_t>(digits.size()))
    digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
  return signed_pad(rt, i < 0, (spec.alternate ? prefix : "") + digits, spec);
}

std::string format_double(Runtime& rt, double d, const Spec& spec) {
  const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  const double magnitude = std::fabs(d);
  rt.charge(static_cast<size_t>(precision) + 320);
  std::string body;
  if (!std::isfinite(d)) {
    body = std::isnan(d) ? "nan" : "inf";
    if (spec.type == 'E' || spec.type == 'F' || spec.type == 'G') body = upper(body);
  } else {
    switch (spec.type) {
      case 'f':
      case 'F':
        body = fmt::format("{:.{}f}", magnitude, precision);
        break;
      case 'e':
        body = fmt::format("{:.{}e}", magnitude, precision);
        break;
      case 'E':
        body = fmt::format("{:.{}E}", magnitude, precision);
        break;
      case 'g':
        body = fmt::format("{:.{}g}", magnitude, precision);
        break;
      case 'G':
        body = fmt::format("{:.{}G}", magnitude, precision);
        break;
      case '%':
        body = fmt::format("{:.{}f}%", magnitude * 100, precision);
        break;
      default:
        if (spec.precision >= 0) rt.unsupported("a float format with a precision and no type");
        body = float_repr(magnitude);
    }
  }
  return signed_pad(rt, std::signbit(d) && !std::isnan(d), body, spec);
}

std::string format_text(Runtime& rt, const std::string& text, const Spec& spec) {
  return pad(rt, "", spec.precision < 0 ? text : slice(text, 0, spec.precision, 1), spec, '<');
}

}  // namespace hayfork::engine::jinja
