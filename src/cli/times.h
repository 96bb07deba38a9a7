// Times for people.
#pragma once

#include <string>

namespace hayfork::cli {

// "10m ago" of an ISO-8601 time; the text itself when it cannot be read.
std::string ago(const std::string& iso);
// "50m", "2h", "90s", "1h30m" or seconds. Throws: usage.
double parse_duration(const std::string& text, const std::string& flag);

}  // namespace hayfork::cli
