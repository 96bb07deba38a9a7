// Lists and ranges of the command line: "512-2k*2", "0-100+10", "4k,8k,100k". k and K are 1,024, m and M 1,048,576:
// lengths count tokens, and a context window is a power of two.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hayfork {

// Throws: usage, naming `option` and the part that is wrong. Results are in the order given, duplicates removed.
int64_t parse_count(std::string_view text, const std::string& option);
std::vector<int64_t> parse_counts(std::string_view text, const std::string& option);
std::vector<double> parse_numbers(std::string_view text, const std::string& option);

std::string format_bytes(double bytes);       // "1.3 GiB"
std::string format_duration(double seconds);  // "1m12s"
std::string format_count(int64_t n);          // "19 968" with thin grouping for people
std::string utc_now();                        // ISO-8601, seconds, Z

}  // namespace hayfork
