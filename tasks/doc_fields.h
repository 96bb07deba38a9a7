// A row of a data set with typed access to its fields; what is missing or of another type is one Error that names file,
// line and field, so that the document fails and the others go on.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/error.h"

namespace hayfork::tasks {

class Fields {
 public:
  // Both must outlive the object.
  Fields(const nlohmann::ordered_json& row, const std::string& where) : row_(row), where_(where) {}

  const nlohmann::ordered_json& row() const { return row_; }
  const std::string& where() const { return where_; }
  bool has(const char* key) const;
  // All throw corrupt (data).
  const nlohmann::ordered_json& at(const char* key) const;
  std::string text(const char* key) const;
  int64_t integer(const char* key) const;  // a number, or a text that is one ("2")
  std::vector<std::string> texts(const char* key) const;
  // field["key"] of an object field: choices.text.
  std::vector<std::string> texts(const char* key, const char* inner) const;
  // A class number within [0, n).
  int64_t label(const char* key, int64_t n) const;
  // The place of field `key` (blanks at its left dropped) among `names`.
  int64_t place(const char* key, const std::vector<std::string>& names) const;

  [[noreturn]] void fail(const std::string& field, const std::string& want, const nlohmann::ordered_json& found) const;
  [[noreturn]] void fail(const std::string& what) const;

 private:
  const nlohmann::ordered_json& row_;
  const std::string& where_;
};

// Python's str.strip(), rstrip() and len() over code points.
std::string strip(std::string_view text);
std::string rstrip(std::string_view text);
std::string lstrip(std::string_view text);
bool is_blank(char32_t c);  // the characters that those take off

}  // namespace hayfork::tasks
