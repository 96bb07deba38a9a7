// JSON Lines: one JSON value a line, read one after another so that a file of any size takes little memory. Used for
// request files and data sets. LF and CRLF ends, a byte order mark, blank lines and a missing last line end are fine;
// everything else that is not JSON is an error that names the file and the line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "datasets/byte_source.h"

namespace hayfork::datasets {

enum class DuplicateKeys {
  error,
  last,  // the last value counts, at the place of the first, as in Python
};

struct JsonlOptions {
  size_t max_line_bytes = size_t{64} << 20;
  int max_depth = 64;
  bool objects_only = true;      // other values are errors
  bool python_literals = false;  // NaN, Infinity and -Infinity, as in base/json.h
  DuplicateKeys duplicate_keys = DuplicateKeys::error;
  InvalidUtf8 invalid_utf8 = InvalidUtf8::error;
};

class JsonlReader {
 public:
  // "-" is standard input. Throws: not_found (data).
  explicit JsonlReader(const std::filesystem::path& path, JsonlOptions options = {});
  // `text` must outlive the reader.
  JsonlReader(std::string_view text, std::string name, JsonlOptions options = {});

  // The next value; false at the end. Throws: corrupt (data); the reader is then of no further use.
  bool next(nlohmann::ordered_json& value);

  // Of the value last given: its line, counted from 1, and the line's first byte in the file.
  int64_t line() const { return line_; }
  uint64_t offset() const { return offset_; }
  // "file.jsonl, line 12", for messages about that value.
  std::string where() const;

 private:
  bool read_line(std::string& line);

  ByteSource source_;
  JsonlOptions options_;
  int64_t line_ = 0;
  uint64_t offset_ = 0;
};

}  // namespace hayfork::datasets
