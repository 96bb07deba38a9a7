#include "tasks/doc_fields.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/utf8.h"

namespace hayfork::tasks {

using nlohmann::ordered_json;

namespace {

std::string shown(const ordered_json& value) {
  std::string text = value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  if (text.size() > 60) text = replace_invalid_utf8(text.substr(0, 57)) + "…";
  return text;
}

std::vector<std::string> list_of(const Fields& fields, const std::string& name, const ordered_json& value) {
  if (!value.is_array()) fields.fail(name, "a list of texts", value);
  std::vector<std::string> out;
  for (const ordered_json& item : value) {
    if (!item.is_string()) fields.fail(name, "a list of texts", value);
    out.push_back(item.get<std::string>());
  }
  return out;
}

}  // namespace

void Fields::fail(const std::string& field, const std::string& want, const ordered_json& found) const {
  throw Error(ErrorCode::corrupt, ErrorSubject::data, fmt::format("field \"{}\" is not what the task needs", field),
              {.where = where_, .why = fmt::format("want {}, found {}", want, shown(found))});
}

void Fields::fail(const std::string& what) const {
  throw Error(ErrorCode::corrupt, ErrorSubject::data, what, {.where = where_});
}

bool Fields::has(const char* key) const {
  return row_.contains(key);
}

const ordered_json& Fields::at(const char* key) const {
  const auto found = row_.find(key);
  if (found == row_.end()) fail(fmt::format("field \"{}\" is missing", key));
  return *found;
}

std::string Fields::text(const char* key) const {
  const ordered_json& value = at(key);
  if (!value.is_string()) fail(key, "a text", value);
  return value.get<std::string>();
}

int64_t Fields::integer(const char* key) const {
  const ordered_json& value = at(key);
  if (value.is_number_integer() && (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX))
    return value.get<int64_t>();
  int64_t number = 0;
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size()) return number;
  }
  fail(key, "a whole number", value);
}

std::vector<std::string> Fields::texts(const char* key) const {
  return list_of(*this, key, at(key));
}

std::vector<std::string> Fields::texts(const char* key, const char* inner) const {
  const ordered_json& value = at(key);
  if (!value.is_object() || !value.contains(inner)) fail(key, fmt::format("an object with \"{}\"", inner), value);
  return list_of(*this, fmt::format("{}.{}", key, inner), value[inner]);
}

int64_t Fields::label(const char* key, int64_t n) const {
  const int64_t value = integer(key);
  if (value < 0 || value >= n) fail(key, fmt::format("a number from 0 to {}", n - 1), at(key));
  return value;
}

int64_t Fields::place(const char* key, const std::vector<std::string>& names) const {
  const std::string wanted = lstrip(text(key));
  const auto found = std::find(names.begin(), names.end(), wanted);
  if (found == names.end()) {
    std::string list;
    for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
    fail(key, "one of " + list, at(key));
  }
  return found - names.begin();
}

bool is_blank(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::string lstrip(std::string_view text) {
  while (!text.empty()) {
    const DecodedChar c = decode_utf8(text, 0);
    if (!is_blank(c.code_point)) break;
    text.remove_prefix(static_cast<size_t>(c.length));
  }
  return std::string(text);
}

std::string rstrip(std::string_view text) {
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    const DecodedChar c = decode_utf8(text, at);
    at += static_cast<size_t>(c.length);
    if (!is_blank(c.code_point)) end = at;
  }
  return std::string(text.substr(0, end));
}

std::string strip(std::string_view text) {
  return lstrip(rstrip(text));
}

}  // namespace hayfork::tasks
