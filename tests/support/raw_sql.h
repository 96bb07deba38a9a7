// SQL on a results database behind the store's back: what damages a file for a test, or looks at what was stored.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace hayfork::test {

// The first column of the rows; "NULL" for NULL. Fails the test where SQLite refuses.
std::vector<std::string> raw_sql(const std::filesystem::path& path, const std::string& sql);

}  // namespace hayfork::test
