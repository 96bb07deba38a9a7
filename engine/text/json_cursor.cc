#include "engine/text/json_cursor.h"

#include <charconv>

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"

namespace hayfork::engine {
namespace {

constexpr int kMaxDepth = 64;

}  // namespace

void JsonCursor::fail(const std::string& why) const {
  throw Error(ErrorCode::corrupt, ErrorSubject::model, "not valid JSON",
              {.where = fmt::format("{}, byte {}", name_, at_), .why = why, .next = {}});
}

char JsonCursor::peek() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t'))
    ++at_;
  return at_ < text_.size() ? text_[at_] : '\0';
}

void JsonCursor::expect(char c) {
  if (peek() != c || at_ == text_.size()) fail(fmt::format("expected '{}'", c));
  ++at_;
}

bool JsonCursor::next(bool& first, char close) {
  if (peek() == close) {
    ++at_;
    return false;
  }
  if (!first) expect(',');
  first = false;
  return true;
}

std::string_view JsonCursor::string(std::string& scratch) {
  expect('"');
  const size_t begin = at_;
  const auto plain = [this] {
    return at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' &&
           static_cast<unsigned char>(text_[at_]) >= 0x20;
  };
  while (plain()) ++at_;
  if (at_ < text_.size() && text_[at_] == '"') return text_.substr(begin, at_++ - begin);
  scratch.assign(text_.substr(begin, at_ - begin));
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '"') {
      ++at_;
      return scratch;
    }
    if (c == '\\') {
      ++at_;
      escape(scratch);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      fail("control character in a string");
    } else {
      const size_t from = at_;
      while (plain()) ++at_;
      scratch.append(text_.substr(from, at_ - from));
    }
  }
  fail("string without an end");
}

uint32_t JsonCursor::hex4() {
  uint32_t value = 0;
  if (at_ + 4 > text_.size()) fail("escape cut short");
  const char* begin = text_.data() + at_;
  const auto [end, error] = std::from_chars(begin, begin + 4, value, 16);
  if (error != std::errc() || end != begin + 4) fail("\\u without four hexadecimal digits");
  at_ += 4;
  return value;
}

void JsonCursor::escape(std::string& out) {
  if (at_ == text_.size()) fail("escape cut short");
  const char c = text_[at_++];
  switch (c) {
    case '"':
    case '\\':
    case '/':
      out += c;
      return;
    case 'b':
      out += '\b';
      return;
    case 'f':
      out += '\f';
      return;
    case 'n':
      out += '\n';
      return;
    case 'r':
      out += '\r';
      return;
    case 't':
      out += '\t';
      return;
    case 'u':
      break;
    default:
      fail("unknown escape");
  }
  uint32_t code = hex4();
  if (code >= 0xDC00 && code <= 0xDFFF) fail("second half of a surrogate pair alone");
  if (code >= 0xD800 && code <= 0xDBFF) {
    if (text_.substr(at_, 2) != "\\u") fail("first half of a surrogate pair alone");
    at_ += 2;
    const uint32_t low = hex4();
    if (low < 0xDC00 || low > 0xDFFF) fail("first half of a surrogate pair alone");
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  }
  append_utf8(out, code);
}

int64_t JsonCursor::integer() {
  peek();
  int64_t value = 0;
  const char* begin = text_.data() + at_;
  const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
  if (error != std::errc()) fail("expected an integer");
  at_ += static_cast<size_t>(end - begin);
  if (at_ < text_.size() && (text_[at_] == '.' || text_[at_] == 'e' || text_[at_] == 'E')) fail("expected an integer");
  return value;
}

void JsonCursor::skip_literal() {
  // Numbers and words are only delimited here: whoever reads the value checks its form.
  const size_t begin = at_;
  while (at_ < text_.size()) {
    const char c = text_[at_];
    const bool part = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '-' || c == '+' || c == '.' || c == 'E';
    if (!part) break;
    ++at_;
  }
  if (at_ == begin) fail("expected a value");
}

void JsonCursor::skip_value(int depth) {
  if (depth > kMaxDepth) fail("nested too deeply");
  std::string scratch;
  bool first = true;
  switch (peek()) {
    case '"':
      string(scratch);
      return;
    case '{':
      expect('{');
      while (next(first, '}')) {
        string(scratch);
        expect(':');
        skip_value(depth + 1);
      }
      return;
    case '[':
      expect('[');
      while (next(first, ']')) skip_value(depth + 1);
      return;
    default:
      skip_literal();
  }
}

std::string_view JsonCursor::value() {
  peek();
  const size_t begin = at_;
  skip_value(0);
  return text_.substr(begin, at_ - begin);
}

void JsonCursor::end() {
  peek();
  if (at_ != text_.size()) fail("something follows the document");
}

}  // namespace hayfork::engine
