#include "engine/text/jinja_lexer.h"

#include <algorithm>

#include <fmt/format.h>
#include <unicode/uchar.h>

#include "base/error.h"
#include "base/utf8.h"
#include "engine/text/jinja_text.h"

namespace hayfork::engine::jinja {
namespace {

constexpr size_t kMaxTokens = 1 << 20;

// Line ends become LF, and one at the very end is dropped unless the rules keep it (keep_trailing_newline).
std::string normalize_newlines(std::string_view source, Rules rules) {
  std::string out;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (rules == Rules::chat && out.ends_with('\n')) out.pop_back();
  return out;
}

bool is_word(char32_t c) {
  return c == '_' || (c < 0x80 ? std::isalnum(static_cast<int>(c)) != 0
                               : u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_XID_CONTINUE) != 0);
}

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& name, Rules rules)
      : source_(normalize_newlines(source, rules)), name_(name), trims_(rules == Rules::chat) {}

  std::vector<Token> run() {
    if (const auto bad = find_invalid_utf8(source_)) fail(fmt::format("invalid UTF-8 at byte {}", *bad));
    while (position_ < source_.size()) root();
    push(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ErrorCode::corrupt, ErrorSubject::model, "the chat template is not valid Jinja",
                {.where = fmt::format("{}, line {}", name_, line_), .why = why});
  }

  void push(TokenKind kind, std::string text) {
    if (tokens_.size() == kMaxTokens) fail("too many tokens");
    tokens_.push_back({kind, std::move(text), line_});
  }

  // Moves on, counting lines.
  void advance(size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(position_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    position_ = to;
  }

  bool at(std::string_view text, size_t offset = 0) const {
    return source_.compare(position_ + offset, text.size(), text) == 0;
  }

  size_t skip_space(size_t from) const {
    while (from < source_.size()) {
      const DecodedChar c = decode_utf8(source_, from);
      if (!is_space(c.code_point)) break;
      from += c.length;
    }
    return from;
  }

  // Text up to the next tag, then the tag.
  void root() {
    size_t tag = source_.find('{', position_);
    while (tag != std::string::npos &&
           (tag + 1 >= source_.size() || std::string_view("{%#").find(source_[tag + 1]) == std::string_view::npos)) {
      tag = source_.find('{', tag + 1);
    }
    if (tag == std::string::npos) {
      push(TokenKind::data, source_.substr(position_));
      advance(source_.size());
      return;
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const bool signed_tag = sign == '-' || sign == '+';
    data(source_.substr(position_, tag - position_), signed_tag ? sign : '\0', kind != '{');
    advance(tag);
    const size_t inside = tag + 2 + (signed_tag ? 1 : 0);
    if (kind == '#')
      comment(inside);
    else if (kind == '{')
      variable(inside);
    else if (const size_t body = raw_body(inside))
      raw(body);
    else
      block(inside);
  }

  // Text before a tag: "-" strips it, and a block tag alone on its line takes the line's indentation with it.
  void data(std::string text, char sign, bool lstrip) {
    if (sign == '-') {
      text = strip_space(text, Side::right);
    } else if (sign != '+' && lstrip && trims_) {
      const size_t line_start = text.rfind('\n') + 1;  // 0 when there is none
      if ((line_start > 0 || line_starting_) &&
          strip_space(std::string_view(text).substr(line_start), Side::both).empty())
        text.resize(line_start);
    }
    if (!text.empty()) push(TokenKind::data, std::move(text));
  }

  // Past the end of a tag whose closing text starts here; `line_starting_` is whether it ended with a line feed.
  void close(std::string_view mark, bool trims_newline, char sign) {
    size_t end = position_ + (sign ? 1 : 0) + mark.size();
    if (sign == '-')
      end = skip_space(end);
    else if (trims_ && sign == '\0' && trims_newline && end < source_.size() && source_[end] == '\n')
      ++end;
    line_starting_ = source_[end - 1] == '\n';
    advance(end);
  }

  // The sign if the tag ends here: "-%}", "+%}" or "%}".
  bool closes(std::string_view mark, bool plus, char& sign) const {
    sign = '\0';
    if (at(mark)) return true;
    if (!at(mark, 1)) return false;
    sign = source_[position_];
    return sign == '-' || (plus && sign == '+');
  }

  void comment(size_t inside) {
    const size_t end = source_.find("#}", inside);
    if (end == std::string::npos && inside < source_.size()) fail("Missing end of comment tag");
    if (end == std::string::npos) return advance(inside);  // nothing at all behind the opening: Jinja lets it pass
    const char before = end > inside ? source_[end - 1] : '\0';
    const bool signed_end = before == '-' || before == '+';
    advance(signed_end ? end - 1 : end);
    close("#}", true, signed_end ? before : '\0');
  }

  // The offset behind "{% raw %}" if the tag whose inside starts here is that, else 0.
  size_t raw_body(size_t inside) const {
    size_t i = skip_space(inside);
    if (source_.compare(i, 3, "raw") != 0) return 0;
    i = skip_space(i + 3);
    if (source_.compare(i, 3, "-%}") == 0) return skip_space(i + 3);
    return source_.compare(i, 2, "%}") == 0 ? i + 2 : 0;
  }

  void raw(size_t body) {
    line_starting_ = source_[body - 1] == '\n';
    advance(body);
    for (size_t tag = source_.find("{%", body); tag != std::string::npos; tag = source_.find("{%", tag + 1)) {
      size_t i = tag + 2;
      const char sign = i < source_.size() && (source_[i] == '-' || source_[i] == '+') ? source_[i++] : '\0';
      i = skip_space(i);
      if (source_.compare(i, 6, "endraw") != 0) continue;
      i = skip_space(i + 6);
      const size_t before = position_;
      position_ = i;
      char end_sign = '\0';
      const bool ends = closes("%}", true, end_sign);
      position_ = before;
      if (!ends) continue;
      data(source_.substr(body, tag - body), sign, true);
      advance(i);
      close("%}", true, end_sign);
      return;
    }
    if (body < source_.size()) fail("Missing end of raw directive");  // as with a comment
  }

  void variable(size_t inside) {
    push(TokenKind::variable_begin, "");
    advance(inside);
    code("}}", false);
    push(TokenKind::variable_end, "");
  }

  void block(size_t inside) {
    push(TokenKind::block_begin, "");
    advance(inside);
    code("%}", true);
    push(TokenKind::block_end, "");
  }

  // Tokens up to the closing mark, which counts only outside of brackets.
  void code(std::string_view mark, bool is_block) {
    std::string open;
    for (;;) {
      char sign = '\0';
      if (open.empty() && position_ < source_.size() && closes(mark, is_block, sign)) {
        close(mark, is_block, sign);
        return;
      }
      const size_t next = skip_space(position_);
      if (next > position_) {
        advance(next);
        continue;
      }
      if (position_ >= source_.size()) fail(fmt::format("unexpected end of template, expected '{}'", mark));
      token(open);
    }
  }

  void token(std::string& open) {
    const char c = source_[position_];
    const bool digit = c >= '0' && c <= '9';
    if (digit) return number();
    if (c == '"' || c == '\'') return string(c);
    if (is_word(decode_utf8(source_, position_).code_point)) return name();
    for (const std::string_view op : {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                      "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"}) {
      if (!at(op)) continue;
      balance(c, open);
      push(TokenKind::op, std::string(op));
      position_ += op.size();
      return;
    }
    fail(fmt::format("unexpected char '{}'",
                     printable(source_.substr(position_, decode_utf8(source_, position_).length))));
  }

  void balance(char c, std::string& open) const {
    if (c == '(')
      open += ')';
    else if (c == '[')
      open += ']';
    else if (c == '{')
      open += '}';
    if (c != ')' && c != ']' && c != '}') return;
    if (open.empty()) fail(fmt::format("unexpected '{}'", c));
    if (open.back() != c) fail(fmt::format("unexpected '{}', expected '{}'", c, open.back()));
    open.pop_back();
  }

  void name() {
    size_t end = position_;
    const auto first = static_cast<UChar32>(decode_utf8(source_, end).code_point);
    if (first != '_' && !u_hasBinaryProperty(first, UCHAR_XID_START)) fail("Invalid character in identifier");
    while (end < source_.size()) {
      const DecodedChar c = decode_utf8(source_, end);
      if (!is_word(c.code_point)) break;
      end += c.length;
    }
    push(TokenKind::name, source_.substr(position_, end - position_));
    position_ = end;
  }

  size_t digits(size_t from, const char* allowed) const {
    size_t end = from;
    while (end < source_.size()) {
      const size_t next = end + (source_[end] == '_' && end > from ? 1 : 0);
      if (next >= source_.size() ||
          std::string_view(allowed).find(static_cast<char>(std::tolower(source_[next]))) == std::string_view::npos)
        break;
      end = next + 1;
    }
    return end;
  }

  void number() {
    const auto lower_at = [&](size_t i) {
      return i < source_.size() ? static_cast<char>(std::tolower(source_[i])) : '\0';
    };
    const char* kDecimal = "0123456789";
    size_t end = position_;
    const char base = source_[position_] == '0' ? lower_at(position_ + 1) : '\0';
    const char* allowed = base == 'x' ? "0123456789abcdef" : base == 'o' ? "01234567" : base == 'b' ? "01" : nullptr;
    TokenKind kind = TokenKind::integer;
    if (allowed) {
      const size_t start = position_ + 2 + (lower_at(position_ + 2) == '_' ? 1 : 0);
      const size_t stop = digits(start, allowed);
      if (stop > start) return finish_number(kind, stop);
    }
    end = digits(position_, kDecimal);
    const bool after_dot = position_ > 0 && source_[position_ - 1] == '.';  // x.1.2: two subscripts, no float
    size_t fraction = end;
    if (!after_dot && lower_at(end) == '.' && digits(end + 1, kDecimal) > end + 1) fraction = digits(end + 1, kDecimal);
    size_t exponent = fraction;
    if (!after_dot && lower_at(fraction) == 'e') {
      const size_t sign = lower_at(fraction + 1) == '+' || lower_at(fraction + 1) == '-' ? 1 : 0;
      const size_t stop = digits(fraction + 1 + sign, kDecimal);
      if (stop > fraction + 1 + sign) exponent = stop;
    }
    if (exponent > end) return finish_number(TokenKind::floating, exponent);
    if (source_[position_] == '0') end = digits(position_, "0");  // 012 is 0 followed by 12, which no grammar allows
    finish_number(kind, end);
  }

  void finish_number(TokenKind kind, size_t end) {
    std::string text = source_.substr(position_, end - position_);
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    push(kind, text);
    position_ = end;
  }

  void string(char quote) {
    size_t end = position_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail(fmt::format("unexpected char '{}'", quote));
    push(TokenKind::string, unescape(source_.substr(position_ + 1, end - position_ - 1)));
    advance(end + 1);
  }

  uint32_t hex(std::string_view text, size_t at, size_t n) const {
    uint32_t code = 0;
    for (size_t i = at; i < at + n; ++i) {
      if (i >= text.size() || !std::isxdigit(static_cast<unsigned char>(text[i])))
        fail("a truncated escape in a string");
      code = code * 16 + static_cast<uint32_t>(std::isdigit(static_cast<unsigned char>(text[i]))
                                                   ? text[i] - '0'
                                                   : (text[i] | 0x20) - 'a' + 10);
    }
    return code;
  }

  // Python's escapes; an unknown one stays as it is.
  std::string unescape(std::string_view text) const {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        out += text[i];
        continue;
      }
      const char c = text[++i];
      constexpr std::string_view kFrom = "\\'\"abfnrtv";
      constexpr std::string_view kTo = "\\'\"\a\b\f\n\r\t\v";
      const size_t simple = kFrom.find(c);
      const size_t n = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
      if (simple != std::string_view::npos) {
        out += kTo[simple];
      } else if (n > 0) {
        uint32_t code = hex(text, i + 1, n);
        i += n;
        if (code > 0x10FFFF) fail("an escape beyond U+10FFFF in a string");
        if (code >= 0xD800 && code < 0xE000) fail("an escape for a surrogate in a string");
        append_utf8(out, code);
      } else if (c >= '0' && c <= '7') {
        uint32_t code = 0;
        size_t stop = i;
        while (stop < text.size() && stop < i + 3 && text[stop] >= '0' && text[stop] <= '7')
          code = code * 8 + static_cast<uint32_t>(text[stop++] - '0');
        i = stop - 1;
        append_utf8(out, code);
      } else if (c == 'N') {
        fail("an escape by character name in a string");
      } else if (c != '\n') {  // a line end after a backslash joins the lines
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  const std::string source_;
  const std::string& name_;
  bool trims_;
  std::vector<Token> tokens_;
  size_t position_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, const std::string& name, Rules rules) {
  return Lexer(source, name, rules).run();
}

}  // namespace hayfork::engine::jinja
