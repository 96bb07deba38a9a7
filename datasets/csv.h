// CSV as RFC 4180 has it: fields between commas, quoted where they hold commas, quotes (doubled) or line ends. Rows end
// with LF, CRLF or CR; blank lines are skipped. Read one row after another.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/byte_source.h"

namespace hayfork::datasets {

struct CsvOptions {
  char delimiter = ',';  // '\t' for TSV
  bool header = true;    // the first row names the columns
  size_t max_field_bytes = size_t{16} << 20;
  size_t max_fields = 4096;  // of one row
  InvalidUtf8 invalid_utf8 = InvalidUtf8::error;
};

class CsvReader {
 public:
  // "-" is standard input. Reads the header. Throws: not_found, corrupt (data): a name that stands twice, no row at
  // all.
  explicit CsvReader(const std::filesystem::path& path, CsvOptions options = {});
  // `text` must outlive the reader.
  CsvReader(std::string_view text, std::string name, CsvOptions options = {});

  // Names of the columns; empty without a header.
  const std::vector<std::string>& header() const { return header_; }
  // The next row; false at the end. Every row has as many fields as the first. Throws: corrupt (data) with the line of
  // a row of another length, an open quote, text behind a closing quote, a field too long, bytes that are no text.
  bool next(std::vector<std::string>& row);

  int64_t line() const { return row_line_; }  // where the row last given begins, counted from 1
  std::string where() const;

 private:
  void start();
  bool read_row(std::vector<std::string>& row);
  void read_field(std::vector<std::string>& row);
  void read_quoted(std::string& field);
  void skip_blank_lines();
  int peek();  // the next byte, or -1
  int take();
  [[noreturn]] void fail(const std::string& what, const std::string& why, int64_t line) const;

  ByteSource source_;
  CsvOptions options_;
  std::vector<std::string> header_;
  size_t n_fields_ = 0;  // of the first row
  int64_t line_ = 1;     // of the next byte
  int64_t row_line_ = 0;
};

}  // namespace hayfork::datasets
