#include "metrics/wikitext.h"

#include <algorithm>

#include "base/utf8.h"

namespace hayfork::metrics {
namespace {

// Python's \s in str patterns: str.isspace().
bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

void replace(std::string& text, std::string_view from, std::string_view to) {
  std::string out;
  size_t at = 0;
  for (size_t hit = text.find(from); hit != std::string::npos; hit = text.find(from, at)) {
    out.append(text, at, hit - at);
    out += to;
    at = hit + from.size();
  }
  out.append(text, at);
  text = std::move(out);
}

std::string stripped(std::string_view text) {
  size_t first = text.size(), last = 0;
  for (size_t at = 0; at < text.size();) {
    const DecodedChar c = decode_utf8(text, at);
    const size_t end = at + static_cast<size_t>(c.length);
    if (!is_space(c.code_point)) {
      first = std::min(first, at);
      last = end;
    }
    at = end;
  }
  return first < last ? std::string(text.substr(first, last - first)) : "";
}

// "( a b )" → "(a b)": the nearest closing mark ends it.
void tighten(std::string& text, char open, char close) {
  std::string out;
  size_t at = 0;
  for (;;) {
    const size_t begin = text.find(open, at);
    const size_t end = begin == std::string::npos ? begin : text.find(close, begin + 1);
    if (end == std::string::npos) break;
    out.append(text, at, begin + 1 - at);
    out += stripped(std::string_view(text).substr(begin + 1, end - begin - 1));
    out += close;
    at = end + 1;
  }
  out.append(text, at);
  text = std::move(out);
}

// "/' 7/" → "/'[0-9]/": upstream's slip, the slashes are part of its pattern and the replacement is taken literally.
void slashed_digits(std::string& text) {
  for (size_t at = text.find("/' "); at != std::string::npos; at = text.find("/' ", at)) {
    const bool hit = at + 4 < text.size() && text[at + 3] >= '0' && text[at + 3] <= '9' && text[at + 4] == '/';
    if (hit) text.replace(at, 5, "/'[0-9]/");
    at += hit ? 8 : 1;  // what was put in is not looked at again
  }
}

}  // namespace

std::string wikitext_detokenized(std::string_view page) {
  std::string text(page);
  replace(text, "s '", "s'");
  slashed_digits(text);
  for (const auto& [from, to] : {std::pair{" @-@ ", "-"},
                                 {" @,@ ", ","},
                                 {" @.@ ", "."},
                                 {" : ", ": "},
                                 {" ; ", "; "},
                                 {" . ", ". "},
                                 {" ! ", "! "},
                                 {" ? ", "? "},
                                 {" , ", ", "}})
    replace(text, from, to);
  for (const auto& [open, close] : {std::pair{'(', ')'}, {'[', ']'}, {'{', '}'}, {'"', '"'}, {'\'', '\''}})
    tighten(text, open, close);
  for (const auto& [from, to] : {std::pair{"= = = =", "===="},
                                 {"= = =", "==="},
                                 {"= =", "=="},
                                 {" ° ", "°"},
                                 {" \n", "\n"},
                                 {"\n ", "\n"},
                                 {" N ", " 1 "},
                                 {" 's", "'s"}})
    replace(text, from, to);
  return text;
}

int64_t count_words(std::string_view text) {
  int64_t n = 1;
  bool in_space = false;
  for (size_t at = 0; at < text.size();) {
    const DecodedChar c = decode_utf8(text, at);
    at += static_cast<size_t>(c.length);
    const bool space = is_space(c.code_point);
    if (space && !in_space) ++n;
    in_space = space;
  }
  return n;
}

}  // namespace hayfork::metrics
