// HTML written so that escaping cannot be forgotten: text() and attribute values are escaped always, and nothing takes
// markup but graphic(), whose Graphic only this folder's chart code makes. Elements are closed in order; take() checks.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace hayfork::runs {

// SVG (or a table beside it) made by our own code from escaped pieces.
class Graphic {
 public:
  explicit Graphic(std::string markup) : markup_(std::move(markup)) {}
  const std::string& markup() const { return markup_; }

 private:
  std::string markup_;
};

struct Attribute {
  const char* name;
  std::string value;
};
using Attributes = std::initializer_list<Attribute>;

class Html {
 public:
  void open(const char* tag, Attributes attributes = {});
  void close();                      // the innermost open element
  void text(std::string_view text);  // escaped: see xml_text in runs/report/svg.h
  void element(const char* tag, std::string_view text) { element(tag, {}, text); }
  void element(const char* tag, Attributes attributes, std::string_view text);
  void single(const char* tag, Attributes attributes = {});  // br, input, meta: no content
  void link(const std::string& href, std::string_view text, Attributes attributes = {});
  void graphic(const Graphic& graphic) { out_ += graphic.markup(); }
  // Text that a model, a data set or a user wrote, in a box of its own: its direction cannot reach what stands beside
  // it. Past `limit` bytes the middle is folded and the count of what is left out said. Bytes that are no text are
  // shown as U+FFFD, with the first of them in hexadecimal behind a switch.
  void quote(std::string_view text, size_t limit = 8000);
  void quote_marked(std::string_view text, std::string_view marked, size_t limit = 8000);  // what is looked for, marked

  size_t depth() const { return open_.size(); }
  std::string take();  // Requires: every element closed

 private:
  void begin(const char* tag, Attributes attributes);
  void quoted(std::string_view text, std::string_view marked);
  std::string out_;
  std::vector<const char*> open_;
};

}  // namespace hayfork::runs
