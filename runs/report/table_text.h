// Escapes that only the table renderer needs; those for everyone are in runs/report/table.h.
#pragma once

#include <string>
#include <string_view>

namespace hayfork::runs {

std::string one_line(std::string_view text);  // printable, line feeds and tabs become blanks
std::string md_text(std::string_view text);   // one line; what Markdown or HTML would read as markup is escaped

}  // namespace hayfork::runs
