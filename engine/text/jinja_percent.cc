// "%s %d" % values.
#include <cmath>

#include <fmt/format.h>

#include "base/utf8.h"
#include "engine/text/jinja_format.h"
#include "engine/text/jinja_spec.h"
#include "engine/text/jinja_text.h"

namespace hayfork::engine::jinja {
namespace {

class Percent {
 public:
  Percent(Runtime& rt, const std::string& format, const Value& values) : rt_(rt), format_(format), values_(values) {
    if (values.is(Kind::tuple)) n_ = values.items().size();
  }

  std::string run() {
    std::string out;
    while (i_ < format_.size()) {
      const size_t next = std::min(format_.find('%', i_), format_.size());
      out.append(format_, i_, next - i_);
      i_ = next;
      if (i_ == format_.size()) break;
      ++i_;
      out += directive();
    }
    const bool mapping = values_.is(Kind::dict) || values_.is(Kind::list) || values_.is(Kind::range) ||
                         values_.is(Kind::undefined);  // what has [ ]
    if (used_ < n_ && !mapping) rt_.fail("not all arguments converted during string formatting");
    return out;
  }

 private:
  char peek() {
    if (i_ >= format_.size()) rt_.fail("incomplete format");
    return format_[i_];
  }

  Value take() {
    if (named_) return *std::exchange(named_, std::nullopt);
    if (used_ >= n_) rt_.fail("not enough arguments for format string");
    ++used_;
    return values_.is(Kind::tuple) ? values_.items()[used_ - 1] : values_;
  }

  int64_t count() {
    if (peek() == '*') {
      ++i_;
      const Value v = take();
      if (!v.is_integral()) rt_.fail("* wants int");
      if (std::abs(v.integer()) > kMaxWidth) rt_.out_of("memory");
      return v.integer();
    }
    int64_t n = 0;
    while (peek() >= '0' && peek() <= '9') {
      n = n * 10 + (format_[i_++] - '0');
      if (n > kMaxWidth) rt_.out_of("memory");
    }
    return n;
  }

  std::string directive() {
    Spec spec;
    if (peek() == '(') {
      const size_t close = format_.find(')', i_);
      if (close == std::string::npos) rt_.fail("incomplete format key");
      if (!values_.is(Kind::dict)) rt_.fail("format requires a mapping");
      const std::string key = format_.substr(i_ + 1, close - i_ - 1);
      const Value* found = values_.dict().find(key);
      if (!found) rt_.fail(fmt::format("key {} is not in the mapping", quote_repr(key)));
      named_ = *found;
      i_ = close + 1;
    }
    bool zero = false;
    for (; std::string_view("-+ #0").find(peek()) != std::string_view::npos; ++i_) {
      const char flag = format_[i_];
      if (flag == '-')
        spec.align = '<';
      else if (flag == '#')
        spec.alternate = true;
      else if (flag == '0')
        zero = true;
      else if (spec.sign != '+')
        spec.sign = flag;
    }
    spec.width = count();
    if (spec.width < 0) spec.align = '<', spec.width = -spec.width;
    if (peek() == '.') {
      ++i_;
      spec.precision = std::max<int64_t>(count(), 0);
    }
    while (peek() == 'h' || peek() == 'l' || peek() == 'L') ++i_;
    spec.type = format_[i_++];
    const bool numeric = std::string_view("diuoxXeEfFgG").find(spec.type) != std::string_view::npos;
    if (zero && numeric && !spec.align) spec.fill = "0", spec.align = '=';
    return convert(spec);
  }

  std::string convert(Spec& spec) {
    if (!spec.align) spec.align = '>';
    switch (spec.type) {
      case '%':
        return "%";
      case 's':
        return format_text(rt_, to_string(rt_, take()), spec);
      case 'r':
        return format_text(rt_, repr(rt_, take()), spec);
      case 'c': {
        const Value v = take();
        if (v.is(Kind::string) && count_code_points(v.text()) == 1) return format_text(rt_, v.text(), spec);
        if (!v.is_integral()) rt_.fail("%c requires int or char");
        return format_integer(rt_, v.integer(), spec);
      }
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X':
        return format_integer(rt_, whole(take(), spec.type), spec);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': {
        const Value v = take();
        if (!v.is_number()) rt_.fail(fmt::format("must be real number, not {}", type_name(v)));
        if (spec.alternate) rt_.unsupported("the flag # for a float");
        return format_double(rt_, v.number(), spec);
      }
      default:
        rt_.fail(fmt::format("unsupported format character '{}'", printable(std::string(1, spec.type))));
    }
  }

  int64_t whole(const Value& v, char type) {
    if (v.is_integral()) return v.integer();
    if (!v.is(Kind::floating) || type == 'o' || type == 'x' || type == 'X') {
      rt_.fail(fmt::format("%{} format: {} is required, not {}", type, v.is_number() ? "an integer" : "a real number",
                           type_name(v)));
    }
    if (!(std::fabs(v.number()) < 9.2e18)) rt_.unsupported("an integer beyond 64 bits");
    return static_cast<int64_t>(v.number());
  }

  Runtime& rt_;
  const std::string& format_;
  const Value& values_;
  size_t i_ = 0;
  size_t n_ = 1;
  size_t used_ = 0;
  std::optional<Value> named_;
};

}  // namespace

std::string percent_format(Runtime& rt, const std::string& format, const Value& values) {
  return Percent(rt, format, values).run();
}

}  // namespace hayfork::engine::jinja
