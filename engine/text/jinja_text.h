// Python's string functions on UTF-8: positions count code points, whitespace and case are Python's (Unicode, with the
// separators U+001C–001F), printing is repr and json.dumps. Case mapping and character classes come from ICU.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hayfork::engine::jinja {

bool is_space(char32_t c);      // str.isspace
bool is_printable(char32_t c);  // str.isprintable

enum class Side { both, left, right };
std::string_view strip_space(std::string_view text, Side side);
std::string strip_chars(std::string_view text, std::string_view chars, Side side);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);  // the first character in title case, the rest in lower case
std::string title(std::string_view text);       // str.title: a word starts after an uncased character
std::string swap_case(std::string_view text);
std::string case_fold(std::string_view text);

// Offset of `needle` at or after `from`, or npos; linear time whatever the strings.
size_t find_text(std::string_view text, std::string_view needle, size_t from = 0);
size_t find_last_text(std::string_view text, std::string_view needle);
std::string replace_all(std::string_view text, std::string_view from, std::string_view to, int64_t count,
                        size_t max_size);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

// Code points [start, start + n·step, …) of a slice already clipped to the text.
std::string slice(std::string_view text, int64_t start, int64_t stop, int64_t step);

std::string quote_repr(std::string_view text);  // 'it\'s'
std::string quote_json(std::string_view text, bool ascii);
std::string float_repr(double d);  // 0.1, 1e+16, inf, nan
std::string escape_html(std::string_view text);

}  // namespace hayfork::engine::jinja
