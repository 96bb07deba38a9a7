// Numbers as text.
#pragma once

#include <string>

namespace hayfork {

// 50 → "50", 0.896 → "0.896": the shortest form that reads back as the same number.
std::string format_number(double value);

}  // namespace hayfork
