// A forward reader of JSON text, for the parts of tokenizer.json that are too large for a document tree (vocabulary and
// merges: a million strings). Checks what it passes over; depth is limited; errors name the file and the byte.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hayfork::engine {

class JsonCursor {
 public:
  // `text` must outlive the cursor and be valid UTF-8; `name` is the file for messages.
  JsonCursor(std::string_view text, std::string name) : text_(text), name_(std::move(name)) {}

  // The next character that is not white space, without taking it; 0 at the end.
  char peek();
  void expect(char c);  // takes it. Throws: corrupt.
  // Objects and lists: after expect('{'), `while (next(first, '}')) { key = string(s); expect(':'); value… }`.
  // Takes a comma or the closing bracket; `first` starts as true.
  bool next(bool& first, char close);
  // A string; the view points into the text, or into `scratch` when there were escapes.
  std::string_view string(std::string& scratch);
  int64_t integer();
  // Passes over any value and gives its text.
  std::string_view value();
  void end();  // Throws: corrupt when anything but white space is left.

  [[noreturn]] void fail(const std::string& why) const;

 private:
  void skip_value(int depth);
  void skip_literal();
  void escape(std::string& out);
  uint32_t hex4();

  std::string_view text_;
  std::string name_;
  size_t at_ = 0;
};

}  // namespace hayfork::engine
