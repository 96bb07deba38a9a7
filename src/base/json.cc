#include "base/json.h"

#include <cctype>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace hayfork {
namespace {

// Python's json module writes Infinity, -Infinity and NaN as bare words; they are put into the object form that
// transformers 5 uses. Strings are left alone.
std::string replace_python_literals(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool in_string = false;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\' && i + 1 < text.size())
        out += text[i++];
      else if (c == '"')
        in_string = false;
      out += text[i++];
      continue;
    }
    bool replaced = false;
    for (const std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
      if (text.substr(i, word.size()) != word) continue;
      out += fmt::format("{{\"__float__\": \"{}\"}}", word);
      i += word.size();
      replaced = true;
      break;
    }
    if (replaced) continue;
    if (c == '"') in_string = true;
    out += c;
    ++i;
  }
  return out;
}

// nlohmann's "[json.exception.parse_error.101] parse error at line 1, column 9: why; last read: 'a long word'", without
// its label, and with as much of the word as a line holds.
std::string plain(std::string why) {
  if (const size_t end = why.find("] "); why.starts_with("[json.exception") && end != std::string::npos)
    why.erase(0, end + 2);
  constexpr size_t kMost = 200;
  if (why.size() > kMost) {
    size_t end = kMost;
    while (end > 0 && (static_cast<unsigned char>(why[end]) & 0xC0) == 0x80) --end;  // not inside a character
    why = why.substr(0, end) + "…";
  }
  return why;
}

template <typename Json>
Json parse(std::string_view text, const std::string& name, ErrorSubject subject, JsonOptions options) {
  std::string replaced;
  if (options.python_literals) {
    replaced = replace_python_literals(text);
    text = replaced;
  }
  std::vector<std::set<std::string>> keys;
  const auto fail = [&](const std::string& why) {
    return Error(ErrorCode::corrupt, subject, "not valid JSON",
                 {.where = name, .why = why, .next = "correct the file, or get it again from where it came from"});
  };
  const typename Json::parser_callback_t guard = [&](int depth, typename Json::parse_event_t event, Json& parsed) {
    if (depth > options.max_depth) throw fail(fmt::format("nested deeper than {} levels", options.max_depth));
    if (!options.unique_keys) return true;
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) {
      const std::string& key = parsed.template get_ref<const std::string&>();
      if (!keys.back().insert(key).second)
        throw fail(fmt::format("key \"{}\" stands twice in one object", key.substr(0, 80)));
    }
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), guard);
  } catch (const nlohmann::json::exception& error) {
    throw fail(plain(error.what()));
  }
}

}  // namespace

nlohmann::json parse_json(std::string_view text, const std::string& name, ErrorSubject subject, JsonOptions options) {
  return parse<nlohmann::json>(text, name, subject, options);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& name, ErrorSubject subject,
                                          JsonOptions options) {
  return parse<nlohmann::ordered_json>(text, name, subject, options);
}

}  // namespace hayfork
