// What this binary is: version and commit it was built from.
#pragma once

#include <string_view>

namespace hayfork {

std::string_view version();  // "0.1.0"
std::string_view commit();   // 40 hex digits, or "unknown"
bool commit_dirty();         // the tree had changes when it was built

}  // namespace hayfork
