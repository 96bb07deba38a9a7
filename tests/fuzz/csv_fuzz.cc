// CSV: any bytes give rows of one length or an Error; rows written out again are read as the same rows.
#include <cstdint>
#include <string>
#include <string_view>

#include "datasets/csv.h"

namespace {

using Rows = std::vector<std::vector<std::string>>;

Rows read(std::string_view text, const hayfork::datasets::CsvOptions& options) {
  hayfork::datasets::CsvReader reader(text, "fuzz", options);
  Rows rows;
  for (std::vector<std::string> row; reader.next(row);) rows.push_back(row);
  return rows;
}

std::string write(const Rows& rows) {
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) text += ',';
      text += '"';
      for (const char c : row[i]) text += c == '"' ? std::string("\"\"") : std::string(1, c);
      text += '"';
    }
    text += "\r\n";
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const hayfork::datasets::CsvOptions options{.header = false, .max_field_bytes = 4096};
    const Rows rows = read(text, options);
    for (const auto& row : rows) {
      if (row.size() != rows[0].size()) __builtin_trap();
    }
    if (read(write(rows), options) != rows) __builtin_trap();
    read(text, {.delimiter = '\t', .invalid_utf8 = hayfork::datasets::InvalidUtf8::replace});
  } catch (const hayfork::Error& error) {
    if (error.code() == hayfork::ErrorCode::internal) __builtin_trap();
  }
  return 0;
}
