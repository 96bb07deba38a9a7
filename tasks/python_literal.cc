#include "tasks/python_literal.h"

#include <charconv>

#include <nlohmann/json.hpp>

#include "base/utf8.h"

namespace hayfork::tasks {
namespace {

using nlohmann::ordered_json;
using Value = std::optional<ordered_json>;

constexpr int kMaxDepth = 64;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Value whole() {
    Value value = parse(0);
    skip();
    return at_ == text_.size() ? value : std::nullopt;
  }

 private:
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
  }
  bool take(std::string_view token) {
    skip();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  char peek() {
    skip();
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  Value parse(int depth) {
    if (depth > kMaxDepth) return std::nullopt;
    const char c = peek();
    if (c == '[') return list('[', ']', depth);
    if (c == '(') return list('(', ')', depth);
    if (c == '{') return dict(depth);
    if (c == '\'' || c == '"') return texts();
    if (take("True")) return ordered_json(true);
    if (take("False")) return ordered_json(false);
    if (take("None")) return ordered_json(nullptr);
    return number();
  }

  Value list(char open, char close, int depth) {
    take(std::string_view(&open, 1));
    ordered_json out = ordered_json::array();
    while (!take(std::string_view(&close, 1))) {
      Value item = parse(depth + 1);
      if (!item) return std::nullopt;
      out.push_back(std::move(*item));
      if (take(",")) continue;
      if (peek() != close) return std::nullopt;
    }
    return out;
  }

  Value dict(int depth) {
    take("{");
    ordered_json out = ordered_json::object();
    while (!take("}")) {
      const Value key = parse(depth + 1);
      if (!key || !key->is_string() || !take(":")) return std::nullopt;
      Value item = parse(depth + 1);
      if (!item) return std::nullopt;
      out[key->get<std::string>()] = std::move(*item);
      if (take(",")) continue;
      if (peek() != '}') return std::nullopt;
    }
    return out;
  }

  // Neighbouring texts are one.
  Value texts() {
    std::string out;
    while (peek() == '\'' || peek() == '"')
      if (!text(out)) return std::nullopt;
    return ordered_json(out);
  }

  bool text(std::string& out) {
    const char mark = text_[at_];
    const std::string triple(3, mark);
    const bool is_triple = text_.substr(at_).starts_with(triple);
    const std::string_view end = is_triple ? std::string_view(triple) : text_.substr(at_, 1);
    at_ += end.size();
    while (at_ < text_.size()) {
      if (text_.substr(at_).starts_with(end)) {
        at_ += end.size();
        return true;
      }
      if (text_[at_] == '\n' && !is_triple) return false;
      if (text_[at_] == '\\') {
        if (!escape(out)) return false;
      } else {
        out += text_[at_++];
      }
    }
    return false;
  }

  bool escape(std::string& out) {
    if (++at_ == text_.size()) return false;
    const char c = text_[at_++];
    static constexpr std::string_view kNames = "abfnrtv\\'\"", kValues = "\a\b\f\n\r\t\v\\'\"";
    if (const size_t i = kNames.find(c); i != std::string_view::npos) {
      out += kValues[i];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      return code_point(c == 'x' ? 2 : c == 'u' ? 4 : 8, 16, out);
    } else if (c >= '0' && c <= '7') {
      --at_;
      size_t n = 0;
      while (n < 3 && at_ + n < text_.size() && text_[at_ + n] >= '0' && text_[at_ + n] <= '7') ++n;
      return code_point(n, 8, out);
    } else if (c == 'N') {  // a character by its name: nobody has needed one
      return false;
    } else if (c != '\n') {  // an unknown escape stays as it is; a line end is joined
      out += '\\';
      out += c;
    }
    return true;
  }

  bool code_point(size_t digits, int base, std::string& out) {
    uint32_t value = 0;
    if (at_ + digits > text_.size()) return false;
    const char* first = text_.data() + at_;
    const auto [end, error] = std::from_chars(first, first + digits, value, base);
    if (error != std::errc() || end != first + digits || value > 0x10FFFF) return false;
    at_ += digits;
    append_utf8(out, value);
    return true;
  }

  Value number() {
    const char* first = text_.data() + at_;
    const char* last = text_.data() + text_.size();
    int64_t whole = 0;
    const auto [end, error] = std::from_chars(first, last, whole);
    const bool fraction = end != last && (*end == '.' || *end == 'e' || *end == 'E');
    if (error == std::errc() && !fraction) {
      at_ += static_cast<size_t>(end - first);
      return ordered_json(whole);
    }
    double real = 0;
    const auto [end2, error2] = std::from_chars(first, last, real);
    if (error2 != std::errc()) return std::nullopt;
    at_ += static_cast<size_t>(end2 - first);
    return ordered_json(real);
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::optional<ordered_json> python_literal(std::string_view text) {
  if (text.find('\r') == std::string_view::npos) return Parser(text).whole();
  std::string lines;  // Python reads every line end of a source as a line feed
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n' && i > 0 && text[i - 1] == '\r') continue;
    lines += text[i] == '\r' ? '\n' : text[i];
  }
  return Parser(lines).whole();
}

ordered_json parse_python_literal(std::string_view text, const Fields& row) {
  std::optional<ordered_json> value = python_literal(text);
  if (!value) row.fail("a text in the row is no Python literal");
  return std::move(*value);
}

}  // namespace hayfork::tasks
