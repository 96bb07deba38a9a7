// A split of a data set in memory: one JSON object a line. A line that cannot be used is kept as a fault that names
// file, line and reason, so that the other rows keep their numbers and go on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace hayfork::datasets {

struct Record {
  std::shared_ptr<const nlohmann::ordered_json> value;  // an object; null when there is a fault
  int64_t line = 0;                                     // counted from 1
  std::string fault;                                    // "not valid JSON (FILE, line 3; …)"
};

struct Records {
  std::string name;    // the file
  std::string sha256;  // of its bytes
  std::vector<Record> rows;

  std::string where(size_t row) const;  // "FILE, line 12"
};

// Blank lines are skipped, line ends are LF or CRLF, a byte order mark is fine. Throws: not_found; corrupt (data) for a
// file without rows or in UTF-16.
std::shared_ptr<const Records> load_records(const std::filesystem::path& path);
Records parse_records(std::string_view text, const std::string& name);

}  // namespace hayfork::datasets
