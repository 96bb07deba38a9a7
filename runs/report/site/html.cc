#include "runs/report/site/html.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/digest.h"
#include "base/error.h"
#include "base/units.h"
#include "base/utf8.h"
#include "runs/report/svg.h"

namespace hayfork::runs {
namespace {

constexpr size_t kBytesShown = 128;

// The longest beginning of at most n bytes that ends between characters.
size_t cut_at(std::string_view text, size_t n) {
  if (n >= text.size()) return text.size();
  while (n > 0 && (static_cast<unsigned char>(text[n]) & 0xC0) == 0x80) --n;
  return n;
}

bool is_odd(std::string_view text) {
  return find_invalid_utf8(text).has_value() || text.find('\0') != std::string_view::npos;
}

}  // namespace

void Html::begin(const char* tag, Attributes attributes) {
  out_ += '<';
  out_ += tag;
  for (const Attribute& a : attributes) {
    out_ += ' ';
    out_ += a.name;
    out_ += "=\"" + xml_text(a.value) + '"';
  }
  out_ += '>';
}

void Html::open(const char* tag, Attributes attributes) {
  begin(tag, attributes);
  open_.push_back(tag);
}

void Html::close() {
  HAY_CHECK(!open_.empty());
  const std::string_view tag = open_.back();
  open_.pop_back();
  out_ += "</";
  out_ += tag;
  out_ += '>';
  static constexpr std::string_view kBlocks[] = {"section", "div",    "table",  "tr",   "p",       "h1",
                                                 "h2",      "h3",     "ul",     "li",   "details", "article",
                                                 "nav",     "header", "footer", "main", "dl"};
  if (std::find(std::begin(kBlocks), std::end(kBlocks), tag) != std::end(kBlocks)) out_ += '\n';
}

void Html::text(std::string_view text) {
  out_ += xml_text(text);
}

void Html::element(const char* tag, Attributes attributes, std::string_view content) {
  open(tag, attributes);
  text(content);
  close();
}

void Html::single(const char* tag, Attributes attributes) {
  begin(tag, attributes);
}

void Html::link(const std::string& href, std::string_view content, Attributes attributes) {
  out_ += "<a href=\"" + xml_text(href) + '"';
  for (const Attribute& a : attributes) out_ += std::string(" ") + a.name + "=\"" + xml_text(a.value) + '"';
  out_ += '>' + xml_text(content) + "</a>";
}

void Html::quoted(std::string_view content, std::string_view marked) {
  for (size_t at = 0; at < content.size();) {
    const size_t found = marked.empty() ? std::string_view::npos : content.find(marked, at);
    text(content.substr(at, found == std::string_view::npos ? found : found - at));
    if (found == std::string_view::npos) return;
    element("mark", marked);
    at = found + marked.size();
  }
}

void Html::quote(std::string_view content, size_t limit) {
  quote_marked(content, {}, limit);
}

void Html::quote_marked(std::string_view content, std::string_view marked, size_t limit) {
  if (content.empty()) return element("span", {{"class", "soft"}}, "(empty)");
  open("div", {{"class", "quote"}, {"dir", "auto"}});
  if (content.size() <= limit) {
    quoted(content, marked);
  } else {
    const size_t head = cut_at(content, limit * 3 / 4), tail = cut_at(content, content.size() - limit / 4);
    quoted(content.substr(0, head), marked);
    element("span", {{"class", "fold"}},
            fmt::format(" … {} more bytes … ", format_count(static_cast<int64_t>(tail - head))));
    quoted(content.substr(tail), marked);
  }
  close();
  if (!is_odd(content)) return;
  open("details", {{"class", "bytes"}});
  element("summary", "bytes");
  const std::string_view first = content.substr(0, kBytesShown);
  element("code", hex({reinterpret_cast<const unsigned char*>(first.data()), first.size()}) +
                      (content.size() > kBytesShown ? " …" : ""));
  close();
}

std::string Html::take() {
  HAY_CHECK(open_.empty(), open_.empty() ? "" : open_.back());
  return std::move(out_);
}

}  // namespace hayfork::runs
